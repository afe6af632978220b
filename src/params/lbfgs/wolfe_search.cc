#include "params/lbfgs/wolfe_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/check.h"

namespace distbelief {
namespace {

constexpr double kGrowth = 4;           // of the step while there is no bracket, at most
constexpr double kMargin = 0.1;         // of a bracket, at each end, in which no trial is made
constexpr double kNarrowest = 1e-12;    // of a bracket, relative to its ends: there is nothing more to find in it
constexpr double kAfterOverflow = 0.1;  // of a step whose value is not finite

}  // namespace

WolfeSearch::WolfeSearch(double value, double slope, double first, const Options& options)
    : options_(options), start_{0, value, slope}, before_(start_), trial_(first) {
  check(slope < 0 && first > 0, "a search goes downwards");
}

bool WolfeSearch::lessens_enough(const Point& point) const {
  const bool hidden = std::abs(point.value - start_.value) <= options_.rounding * std::abs(start_.value);
  return point.value <= start_.value + options_.decrease * point.step * start_.slope ||
         (hidden && point.slope <= (2 * options_.decrease - 1) * start_.slope);
}

bool WolfeSearch::is_flat_enough(const Point& point) const {
  return std::abs(point.slope) <= -options_.curvature * start_.slope;
}

void WolfeSearch::tried(double value, double slope) {
  check(status_ == Status::searching, "a search that has ended tries nothing");
  const bool finite = std::isfinite(value) && std::isfinite(slope);
  const Point point = {trial_, finite ? value : std::numeric_limits<double>::infinity(), finite ? slope : 0};
  ++trials_;
  const bool good = finite && lessens_enough(point);
  if (settling_ != 0 || (good && is_flat_enough(point))) {
    status_ = finite ? Status::found : Status::failed;
    return;
  }
  if (good && (best_.step == 0 || point.value < best_.value)) {
    best_ = point;
  }
  if (static_cast<int>(trials_) >= options_.most_trials) {
    settle_for_best();
    return;
  }
  if (bracketed_ != 0) {
    if (!good || point.value >= low_.value) {
      high_ = point;
    } else {
      if (point.slope * (high_.step - low_.step) >= 0) {
        high_ = low_;
      }
      low_ = point;
    }
    try_inside();
    return;
  }
  if (!good || (trials_ > 1 && point.value >= before_.value)) {
    low_ = before_;
    high_ = point;
    bracketed_ = 1;
    try_inside();
    return;
  }
  if (point.slope >= 0) {
    low_ = point;
    high_ = before_;
    bracketed_ = 1;
    try_inside();
    return;
  }
  if (trial_ >= options_.longest) {
    settle_for_best();
    return;
  }
  const double minimum = cubic_minimum(before_, point);
  const double least = point.step + (point.step - before_.step) * kMargin;
  const double most = point.step * kGrowth;
  trial_ = std::min(std::isfinite(minimum) && minimum > point.step ? std::clamp(minimum, least, most) : most,
                    options_.longest);
  before_ = point;
}

void WolfeSearch::try_inside() {
  const double begin = std::min(low_.step, high_.step);
  const double end = std::max(low_.step, high_.step);
  if (end - begin <= kNarrowest * end) {
    settle_for_best();
    return;
  }
  if (!std::isfinite(high_.value)) {
    trial_ = low_.step + (high_.step - low_.step) * kAfterOverflow;
    return;
  }
  const double margin = kMargin * (end - begin);
  const double minimum = cubic_minimum(low_, high_);
  trial_ = std::isfinite(minimum) ? std::clamp(minimum, begin + margin, end - margin) : begin + (end - begin) / 2;
}

void WolfeSearch::settle_for_best() {
  if (best_.step == 0) {
    status_ = Status::failed;
  } else {
    trial_ = best_.step;
    settling_ = 1;
  }
}

/// Of the cubic through both points with their slopes; NaN when it has none.
double WolfeSearch::cubic_minimum(const Point& one, const Point& other) {
  const double secant = (one.value - other.value) / (one.step - other.step);
  const double middle = one.slope + other.slope - 3 * secant;
  const double square = middle * middle - one.slope * other.slope;
  if (!(square >= 0)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const double root = std::copysign(std::sqrt(square), other.step - one.step);
  return other.step - (other.step - one.step) * (other.slope + root - middle) / (other.slope - one.slope + 2 * root);
}

void WolfeSearch::visit_state(StateVisitor& visitor) {
  const auto visit = [&](const std::string& name, Point& point) {
    visitor.real(name + "_step", point.step);
    visitor.real(name + "_value", point.value);
    visitor.real(name + "_slope", point.slope);
  };
  visit("search_start", start_);
  visit("search_before", before_);
  visit("search_low", low_);
  visit("search_high", high_);
  visit("search_best", best_);
  visitor.real("search_trial", trial_);
  visitor.number("search_trials", trials_);
  visitor.number("search_bracketed", bracketed_);
  visitor.number("search_settling", settling_);
  auto status = static_cast<std::uint64_t>(status_);
  visitor.number("search_status", status);
  status_ = status <= static_cast<std::uint64_t>(Status::failed) ? static_cast<Status>(status) : Status::failed;
}

}  // namespace distbelief
