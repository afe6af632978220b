#include "params/lbfgs/wolfe_search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace distbelief {
namespace {

/// A function of a step, with its slope.
struct Curve {
  std::function<double(double)> value;
  std::function<double(double)> slope;
};

const Curve kParabola = {[](double t) { return (t - 3) * (t - 3); }, [](double t) { return 2 * (t - 3); }};
/// Flat for long, then steep: the first steps are far too short.
const Curve kFar = {[](double t) { return -t / (t * t + 2); },
                    [](double t) { return (t * t - 2) / ((t * t + 2) * (t * t + 2)); }};
WolfeSearch search(const Curve& curve, double first, const WolfeSearch::Options& options = {}) {
  WolfeSearch search(curve.value(0), curve.slope(0), first, options);
  while (search.status() == WolfeSearch::Status::searching) {
    search.tried(curve.value(search.trial()), curve.slope(search.trial()));
  }
  return search;
}

void expect_wolfe(const Curve& curve, const WolfeSearch& found, const WolfeSearch::Options& options) {
  ASSERT_EQ(found.status(), WolfeSearch::Status::found);
  const double step = found.trial();
  EXPECT_LE(curve.value(step), curve.value(0) + options.decrease * step * curve.slope(0));
  EXPECT_LE(std::abs(curve.slope(step)), -options.curvature * curve.slope(0));
}

TEST(WolfeSearch, FindsAStepThatSatisfiesBothConditionsWhereverItBegins) {
  for (const Curve& curve : {kParabola, kFar}) {
    for (const double curvature : {0.9, 0.1, 0.001}) {
      for (const double first : {1e-3, 0.1, 1.0, 10.0, 1000.0}) {
        const WolfeSearch::Options options = {.curvature = curvature};
        expect_wolfe(curve, search(curve, first, options), options);
      }
    }
  }
}

TEST(WolfeSearch, AFirstStepThatIsGoodIsTheOnlyTrial) {
  const WolfeSearch found = search(kParabola, 3);
  EXPECT_EQ(found.trials(), 1);
  EXPECT_EQ(found.trial(), 3);
}

TEST(WolfeSearch, ComesBackFromWhereTheObjectiveOverflows) {
  const Curve cliff = {[](double t) { return t < 2 ? -t - std::log(2 - t) : std::nan(""); },
                       [](double t) { return t < 2 ? -1 + 1 / (2 - t) : std::nan(""); }};
  expect_wolfe(cliff, search(cliff, 1000), {});
}

TEST(WolfeSearch, AChangeThatRoundingHidesIsJudgedByTheSlope) {
  WolfeSearch flat(1, -1e-9, 1, {});
  flat.tried(1 + 5e-8, 1e-10);
  EXPECT_EQ(flat.status(), WolfeSearch::Status::found);
  WolfeSearch rising(1, -1e-9, 1, {});
  rising.tried(1 + 5e-8, 2e-9);  // far beyond the minimum
  EXPECT_EQ(rising.status(), WolfeSearch::Status::searching);
  WolfeSearch worse(1, -1e-9, 1, {});
  worse.tried(1 + 1e-6, 1e-10);
  EXPECT_EQ(worse.status(), WolfeSearch::Status::searching);
}

TEST(WolfeSearch, FailsWhereTheSlopeLies) {
  const Curve liar = {[](double t) { return t; }, [](double) { return -1; }};
  const WolfeSearch found = search(liar, 1);
  EXPECT_EQ(found.status(), WolfeSearch::Status::failed);
  EXPECT_LE(found.trials(), WolfeSearch::Options{}.most_trials);
}

TEST(WolfeSearch, SettlesForTheBestOfItsTrialsWhenTheyAreUsedUp) {
  const Curve endless = {[](double t) { return -t; }, [](double) { return -1; }};  // never flat
  const WolfeSearch found = search(endless, 1, {.most_trials = 5});
  ASSERT_EQ(found.status(), WolfeSearch::Status::found);
  EXPECT_EQ(found.trials(), 6);             // the best once more, to end there
  EXPECT_EQ(found.trial(), 4 * 4 * 4 * 4);  // it grew as fast as it may
}

}  // namespace
}  // namespace distbelief
