#pragma once

#include <string_view>
#include <vector>

#include "graph/loss.h"

namespace distbelief {

/// As model files and options write them.
std::vector<std::string_view> loss_names();
/// Throws InputError, with the nearest name there is, for one that is not known.
LossPtr make_loss(std::string_view name);

}  // namespace distbelief
