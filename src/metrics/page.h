#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "metrics/chart.h"
#include "metrics/machine.h"

namespace distbelief {

// Parts of pages that need nothing but themselves.

using Pairs = std::vector<std::pair<std::string, std::string>>;

/// A whole page around `body`, which is HTML. It may load nothing, whatever found its way into it. `more_style` is CSS
/// besides the one that all pages have.
std::string html_page(std::string_view title, std::string_view body, std::string_view more_style = {});

/// All charts that have something to draw, with what the page's script needs; once a page. Empty when there is none.
std::string charts_section(const std::vector<Chart>& charts);

/// Figures in large type; the first of them in colour.
std::string facts_section(const Pairs& facts);

/// A table of names and values under a title. Empty without pairs.
std::string pairs_section(std::string_view title, const Pairs& pairs);

/// What is known of a machine.
Pairs machine_pairs(const Machine& machine);

}  // namespace distbelief
