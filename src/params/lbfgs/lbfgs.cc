#include "params/lbfgs/lbfgs.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/check.h"

namespace distbelief {
namespace {

constexpr double kFlat = 1e-12;      // curvature relative to the lengths of a pair: less counts as none
constexpr double kDamped = 0.2;      // curvature of a damped pair, relative to what was expected
constexpr std::uint64_t kInVain = 10;  // iterations without a lower objective: the rest is rounding
constexpr double kSideways = 1e-10;  // cosine between direction and gradient: less does not go downwards

}  // namespace

Lbfgs::Lbfgs(VectorSpace& space, const Options& options)
    : space_(space),
      options_(options),
      search_(options.search),
      curvatures_(static_cast<std::size_t>(std::max(1, options.history))) {
  check(options.history >= 1, "L-BFGS remembers at least one pair");
}

Lbfgs::Report Lbfgs::evaluated(double loss) {
  double objective = loss;
  if (!add_decay(objective)) {
    return lost();
  }
  Report report = {.objective = objective};
  if (awaited_ == Awaited::trial) {
    if (!run({dot_order(kGradient, kDirection)})) {
      return lost();
    }
    search_.tried(objective, dots_[0]);
    if (search_.status() == WolfeSearch::Status::searching) {
      return report;
    }
    if (search_.status() == WolfeSearch::Status::failed) {
      // Back to where it began, whose gradient is known.
      if (!run({copy_order(kOrigin, kValues), copy_order(kOriginGradient, kGradient)})) {
        return lost();
      }
      report.objective = objective_;
      if (pairs_ == 0) {
        report.status = Status::stuck;
        awaited_ = Awaited::again;
        return report;
      }
      pairs_ = 0;
      ++restarts_;
      return find_direction() && begin_search(objective_) ? report : lost();
    }
    report.step = search_.trial();
    if (!remember_pair()) {
      return lost();
    }
    ++iterations_;
    since_least_ = objective < least_ ? 0 : since_least_ + 1;
    least_ = std::min(least_, objective);
  } else {
    since_least_ = 0;
    least_ = objective;
  }
  report.iterated = true;
  if (!run({dot_order(kGradient, kGradient)})) {
    return lost();
  }
  report.gradient_norm = std::sqrt(dots_[0]);
  if (!std::isfinite(objective) || !std::isfinite(report.gradient_norm)) {
    report.status = Status::stuck;  // where all begins, or where the objective has become another one
    awaited_ = Awaited::again;
    return report;
  }
  if (since_least_ >= kInVain) {
    report.status = Status::stuck;
    awaited_ = Awaited::again;
    return report;
  }
  if (report.gradient_norm <= options_.tolerance) {
    report.status = Status::minimum;
    awaited_ = Awaited::again;
    return report;
  }
  return find_direction() && begin_search(objective) ? report : lost();
}

bool Lbfgs::go_on() {
  return awaited_ != Awaited::trial ||
         run({copy_order(kOrigin, kValues), axpy_order(search_.trial(), kDirection, kValues)});
}

void Lbfgs::change_objective() {
  check(awaited_ == Awaited::trial && search_.trials() == 0, "an objective changes after an iteration");
  awaited_ = Awaited::again;
}

void Lbfgs::begin_again() {
  awaited_ = Awaited::beginning;
  pairs_ = 0;
  scale_ = 1;
  ++restarts_;
}

bool Lbfgs::add_decay(double& objective) {
  if (options_.weight_decay == 0) {
    return true;
  }
  if (!run({copy_order(kValues, kScratch), multiply_order(kDecaying, kScratch), dot_order(kValues, kScratch),
            axpy_order(options_.weight_decay, kScratch, kGradient)})) {
    return false;
  }
  objective += options_.weight_decay / 2 * dots_[0];
  return true;
}

bool Lbfgs::remember_pair() {
  if (pairs_ == static_cast<std::uint64_t>(options_.history)) {
    oldest_ = (oldest_ + 1) % static_cast<std::uint64_t>(options_.history);
    --pairs_;
  }
  const VectorName step = step_vector(pairs_);
  const VectorName change = change_vector(pairs_);
  if (!run({copy_order(kValues, step), axpy_order(-1, kOrigin, step), copy_order(kGradient, change),
            axpy_order(-1, kOriginGradient, change), dot_order(step, change), dot_order(step, step),
            dot_order(change, change)})) {
    return false;
  }
  double curvature = dots_[0];
  const double step_square = dots_[1];
  double change_square = dots_[2];
  if (step_square == 0) {
    return true;  // nothing was learned
  }
  if (curvature <= kFlat * std::sqrt(step_square * change_square)) {
    const double expected = step_square / scale_;
    const double share = (1 - kDamped) * expected / (expected - curvature);
    if (!run({scale_order(change, share), axpy_order((1 - share) / scale_, step, change), dot_order(step, change),
              dot_order(change, change)})) {
      return false;
    }
    curvature = dots_[0];
    change_square = dots_[1];
    ++damped_;
  }
  curvatures_[slot(pairs_)] = curvature;
  scale_ = curvature / change_square;
  ++pairs_;
  return true;
}

bool Lbfgs::find_direction() {
  if (!run({copy_order(kGradient, kDirection), scale_order(kDirection, -1)})) {
    return false;
  }
  if (pairs_ == 0) {
    return true;
  }
  // The two loops of Nocedal 1980. Each order ends with the dot product that the next one needs.
  std::vector<double> shares(pairs_);
  for (std::uint64_t age = pairs_; age-- > 0;) {
    const bool newest = age + 1 == pairs_;
    if (!(newest ? run({dot_order(step_vector(age), kDirection)})
                 : run({axpy_order(-shares[age + 1], change_vector(age + 1), kDirection),
                        dot_order(step_vector(age), kDirection)}))) {
      return false;
    }
    shares[age] = dots_[0] / curvatures_[slot(age)];
  }
  if (!run({axpy_order(-shares[0], change_vector(0), kDirection), scale_order(kDirection, scale_),
            dot_order(change_vector(0), kDirection)})) {
    return false;
  }
  for (std::uint64_t age = 0; age < pairs_; ++age) {
    const VectorOrder add = axpy_order(shares[age] - dots_[0] / curvatures_[slot(age)], step_vector(age), kDirection);
    if (!(age + 1 < pairs_ ? run({add, dot_order(change_vector(age + 1), kDirection)}) : run({add}))) {
      return false;
    }
  }
  return true;
}

bool Lbfgs::begin_search(double objective) {
  const auto measure = [&] {
    return run({dot_order(kGradient, kDirection), dot_order(kGradient, kGradient), dot_order(kDirection, kDirection)});
  };
  if (!measure()) {
    return false;
  }
  if (!(dots_[0] < -kSideways * std::sqrt(dots_[1] * dots_[2])) && pairs_ > 0) {
    pairs_ = 0;
    ++restarts_;
    if (!find_direction() || !measure()) {
      return false;
    }
  }
  const double slope = dots_[0];
  const double first = pairs_ > 0 ? 1 : std::min(1.0, 1 / std::sqrt(dots_[1]));
  objective_ = objective;
  awaited_ = Awaited::trial;
  search_ = WolfeSearch(objective, slope, first, options_.search);
  return run({copy_order(kValues, kOrigin), copy_order(kGradient, kOriginGradient)});
}

void Lbfgs::visit_state(StateVisitor& visitor) {
  auto awaited = static_cast<std::uint64_t>(awaited_);
  visitor.number("awaited", awaited);
  awaited_ = static_cast<Awaited>(std::min(awaited, static_cast<std::uint64_t>(Awaited::again)));
  search_.visit_state(visitor);
  if (awaited_ == Awaited::trial && search_.status() != WolfeSearch::Status::searching) {
    awaited_ = Awaited::again;
  }
  visitor.real("objective", objective_);
  visitor.real("least_objective", least_);
  visitor.number("since_least", since_least_);
  visitor.real("scale", scale_);
  visitor.number("oldest_pair", oldest_);
  visitor.number("pairs", pairs_);
  oldest_ %= static_cast<std::uint64_t>(options_.history);
  pairs_ = std::min(pairs_, static_cast<std::uint64_t>(options_.history));
  for (std::size_t i = 0; i < curvatures_.size(); ++i) {
    visitor.real("curvature_" + std::to_string(i), curvatures_[i]);
  }
  visitor.number("iterations", iterations_);
  visitor.number("restarts", restarts_);
  visitor.number("damped", damped_);
}

}  // namespace distbelief
