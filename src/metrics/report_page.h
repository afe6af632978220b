#pragma once

#include <string_view>

namespace distbelief {

/// What is the same in every report: the style sheet and the script, as they stand inside their elements.
std::string_view report_style();
std::string_view report_script();

}  // namespace distbelief
