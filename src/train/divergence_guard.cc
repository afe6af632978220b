#include "train/divergence_guard.h"

#include <algorithm>

#include "train/evaluate.h"

namespace distbelief {
namespace {

constexpr double kWorse = 2;  // times the best

}  // namespace

std::optional<DivergenceGuard::Alarm> DivergenceGuard::watch(const LossSums& sums) {
  open_ += sums;
  if (open_.rows < window_) {
    return {};
  }
  const double mean = mean_loss(open_);
  open_ = {};
  if (passes_) {
    passes_ = false;
    return {};
  }
  if (!first_) {
    first_ = mean;
    best_ = mean;
    return {};
  }
  if (!(mean <= *first_) && !(mean <= kWorse * best_)) {  // nor a number
    passes_ = true;
    return Alarm{.best = best_, .now = mean};
  }
  best_ = std::min(best_, mean);
  return {};
}

}  // namespace distbelief
