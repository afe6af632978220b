#include "train/divergence_guard.h"

#include <algorithm>
#include <bit>

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

void DivergenceGuard::visit_state(StateVisitor& visitor) {
  std::vector<std::uint64_t> means;
  if (first_) {
    means = {std::bit_cast<std::uint64_t>(*first_), std::bit_cast<std::uint64_t>(best_)};
  }
  visitor.numbers("guard", means);
  if (means.size() == 2) {
    first_ = std::bit_cast<double>(means[0]);
    best_ = std::bit_cast<double>(means[1]);
  }
}

}  // namespace distbelief
