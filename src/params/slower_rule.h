#pragma once

#include "params/update_rule.h"

namespace distbelief {

/// A rule for updates that come several times as often, each with the gradient of a part of the samples.
struct SlowerRule {
  RuleOptions options;  ///< momentum and means last longer: as long as before, counted in samples
  double rate = 1;      ///< what the rate is multiplied with, so that all parts together go as far as the whole did
};

/// The given rule for `times` as many updates. With momentum m the new one is the `times`-th root of m, as the velocity
/// fades that much more often, and the sum of what a gradient moves, rate / (1 - m), is shared by the parts.
SlowerRule slower_rule(const RuleOptions& options, int times);

}  // namespace distbelief
