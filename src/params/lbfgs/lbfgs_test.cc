#include "params/lbfgs/lbfgs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "params/lbfgs/range_vectors.h"
#include "params/lbfgs/textbook_lbfgs.h"
#include "params/state_keeper.h"

namespace distbelief {
namespace {

using Point = std::vector<double>;

/// An objective with its gradient.
struct Objective {
  Point start;
  std::function<double(const Point&, Point&)> evaluate;
};

/// Narrow valleys: the second derivatives go from 1 to 1000.
Objective quadratic() {
  Objective objective;
  objective.start.assign(40, 1.0);
  objective.evaluate = [](const Point& x, Point& gradient) {
    double value = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double bend = std::pow(1000.0, static_cast<double>(i) / static_cast<double>(x.size() - 1));
      const double away = x[i] - 0.1 * static_cast<double>(i % 7);
      value += 0.5 * bend * away * away;
      gradient[i] = bend * away;
    }
    return value;
  };
  return objective;
}

Objective rosenbrock() {
  Objective objective;
  objective.start = {-1.2, 1.0};
  objective.evaluate = [](const Point& x, Point& gradient) {
    const double valley = x[1] - x[0] * x[0];
    gradient[0] = -2 * (1 - x[0]) - 400 * x[0] * valley;
    gradient[1] = 200 * valley;
    return (1 - x[0]) * (1 - x[0]) + 100 * valley * valley;
  };
  return objective;
}

ParameterTable table_of(std::size_t parameters) {
  ParameterTable table;
  table.add("w", {.name = "w", .shape = Shape{static_cast<std::int64_t>(parameters)}});
  return table;
}

/// All vectors in this process.
class OwnVectors : public VectorSpace {
 public:
  explicit OwnVectors(const Objective& objective)
      : table(table_of(objective.start.size())),
        values(static_cast<std::size_t>(table.size())),
        vectors(table, table.everything(), values),
        objective_(objective) {
    std::ranges::copy(objective.start, values.begin());
  }
  bool run(std::span<const VectorOrder> orders, std::vector<double>& dots) override {
    if (lost) {
      return false;
    }
    dots.assign(dots_of(orders), 0.0);
    vectors.run(orders, dots);
    return true;
  }
  /// At the values; leaves the gradient where L-BFGS looks for it.
  double evaluate() {
    const Point x(values.begin(), values.begin() + std::ssize(objective_.start));
    Point gradient(x.size());
    const double value = objective_.evaluate(x, gradient);
    std::vector<float> sums(values.size());
    std::ranges::copy(gradient, sums.begin());
    const VectorOrder clear = scale_order(kGradient, 0);
    vectors.run(std::span(&clear, 1), {});
    vectors.add_to_gradient(sums, 1);
    return value;
  }

  const ParameterTable table;
  std::vector<float> values;
  RangeVectors vectors;
  bool lost = false;

 private:
  const Objective& objective_;
};

/// Objectives at the start and after each iteration.
std::vector<double> minimize(OwnVectors& space, Lbfgs& lbfgs, int iterations, Lbfgs::Status* ended = nullptr) {
  std::vector<double> found;
  for (int evaluations = 0; evaluations < 100 * (iterations + 1); ++evaluations) {
    const Lbfgs::Report report = lbfgs.evaluated(space.evaluate());
    if (report.iterated) {
      found.push_back(report.objective);
    }
    if (report.status != Lbfgs::Status::going_on || static_cast<int>(found.size()) > iterations) {
      if (ended != nullptr) {
        *ended = report.status;
      }
      break;
    }
    EXPECT_TRUE(lbfgs.go_on());
  }
  return found;
}

TEST(Lbfgs, TakesTheStepsOfATextbook) {
  for (const Objective& objective : {quadratic(), rosenbrock()}) {
    for (const int history : {1, 3, 10}) {
      OwnVectors space(objective);
      Lbfgs lbfgs(space, {.history = history});
      const std::vector<double> found = minimize(space, lbfgs, 10);
      const std::vector<double> wanted =
          textbook_lbfgs(objective.start, objective.evaluate, 10, static_cast<std::size_t>(history));
      ASSERT_EQ(found.size(), wanted.size());
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_NEAR(found[i], wanted[i], 1e-3 * wanted[i]) << "history " << history << ", iteration " << i;
      }
    }
  }
}

TEST(Lbfgs, ReachesTheMinimum) {
  const Objective objective = rosenbrock();
  OwnVectors space(objective);
  Lbfgs lbfgs(space, {.tolerance = 1e-2});
  Lbfgs::Status ended = {};
  minimize(space, lbfgs, 100, &ended);
  EXPECT_EQ(ended, Lbfgs::Status::minimum);
  EXPECT_NEAR(space.values[0], 1, 1e-2);
  EXPECT_NEAR(space.values[1], 1, 2e-2);
}

TEST(Lbfgs, EndsStuckWhereFloatsAllowNoMore) {
  const Objective objective = quadratic();
  OwnVectors space(objective);
  Lbfgs lbfgs(space, {});
  Lbfgs::Status ended = {};
  const std::vector<double> found = minimize(space, lbfgs, 1000, &ended);
  EXPECT_EQ(ended, Lbfgs::Status::stuck);
  EXPECT_LT(found.back(), 1e-8);
  for (std::size_t i = 1; i < found.size(); ++i) {  // it rises by no more than rounding hides
    EXPECT_LE(found[i], found[i - 1] * (1 + WolfeSearch::Options{}.rounding));
  }
  EXPECT_LT(std::abs(space.evaluate() - found.back()), 1e-12);  // and stands where it was best
}

TEST(Lbfgs, APairWithoutPositiveCurvatureIsDamped) {
  // Bends downwards between its two valleys, and a search of one trial does not look at slopes.
  const Objective objective = {.start = {0.1, 0.2}, .evaluate = [](const Point& x, Point& gradient) {
                                 double value = 0;
                                 for (std::size_t i = 0; i < x.size(); ++i) {
                                   value += x[i] * x[i] * x[i] * x[i] - 8 * x[i] * x[i];
                                   gradient[i] = 4 * x[i] * x[i] * x[i] - 16 * x[i];
                                 }
                                 return value;
                               }};
  OwnVectors space(objective);
  Lbfgs lbfgs(space, {.tolerance = 1e-2, .search = {.most_trials = 1}});
  Lbfgs::Status ended = {};
  minimize(space, lbfgs, 200, &ended);
  EXPECT_GT(lbfgs.damped(), 0);
  EXPECT_EQ(ended, Lbfgs::Status::minimum);
  EXPECT_NEAR(std::abs(space.values[0]), 2, 1e-2);
  EXPECT_NEAR(std::abs(space.values[1]), 2, 1e-2);
}

TEST(Lbfgs, WeightDecayIsPartOfTheObjective) {
  const Objective flat = {.start = {1.0, -2.0}, .evaluate = [](const Point&, Point& gradient) {
                            std::ranges::fill(gradient, 0.0);
                            return 5.0;
                          }};
  OwnVectors space(flat);
  Lbfgs lbfgs(space, {.weight_decay = 0.5, .tolerance = 1e-6});
  Lbfgs::Status ended = {};
  const std::vector<double> found = minimize(space, lbfgs, 20, &ended);
  EXPECT_DOUBLE_EQ(found[0], 5 + 0.25 * (1 + 4));
  EXPECT_EQ(ended, Lbfgs::Status::minimum);
  EXPECT_NEAR(found.back(), 5, 1e-9);
}

TEST(Lbfgs, AnObjectiveOfMoreSamplesGoesOnFromWhereTheLastEnded) {
  double height = 0;
  const Objective quad = quadratic();
  const Objective objective = {.start = quad.start, .evaluate = [&](const Point& x, Point& gradient) {
                                 return quad.evaluate(x, gradient) + height;
                               }};
  OwnVectors space(objective);
  Lbfgs lbfgs(space, {});
  const std::vector<double> before = minimize(space, lbfgs, 3);
  height = 1e3;
  lbfgs.change_objective();
  const Lbfgs::Report again = lbfgs.evaluated(space.evaluate());
  EXPECT_TRUE(again.iterated);
  EXPECT_NEAR(again.objective, before.back() + height, 1e-6);
  EXPECT_EQ(lbfgs.iterations(), 3);
  ASSERT_TRUE(lbfgs.go_on());
  EXPECT_LT(minimize(space, lbfgs, 3).back(), again.objective);
}

TEST(Lbfgs, SaysWhenVectorsAreLost) {
  const Objective objective = quadratic();
  OwnVectors space(objective);
  Lbfgs lbfgs(space, {});
  (void)minimize(space, lbfgs, 2);
  ASSERT_TRUE(lbfgs.go_on());
  space.lost = true;
  EXPECT_EQ(lbfgs.evaluated(1).status, Lbfgs::Status::lost);
}

TEST(Lbfgs, GoesOnBitForBitFromASavedState) {
  const Objective objective = rosenbrock();
  OwnVectors space(objective);
  Lbfgs lbfgs(space, {.history = 3});
  (void)minimize(space, lbfgs, 6);
  StateKeeper memory;
  lbfgs.visit_state(memory);
  space.vectors.visit_state(memory);
  memory.floats("values", space.values);

  OwnVectors other(objective);
  Lbfgs resumed(other, {.history = 3});
  memory.gives_back = true;
  resumed.visit_state(memory);
  other.vectors.visit_state(memory);
  memory.floats("values", other.values);
  ASSERT_TRUE(resumed.go_on());
  ASSERT_TRUE(lbfgs.go_on());
  EXPECT_EQ(minimize(other, resumed, 5), minimize(space, lbfgs, 5));
  EXPECT_EQ(other.values, space.values);
}

TEST(Lbfgs, AStateThatIsSavedInTheMiddleOfAnEvaluationChangesNothingOfIt) {
  const Objective objective = rosenbrock();
  OwnVectors space(objective);
  (void)space.evaluate();
  const auto gradient_square = [&] {
    double square = 0;
    const VectorOrder dot = dot_order(kGradient, kGradient);
    space.vectors.run(std::span(&dot, 1), std::span(&square, 1));
    return square;
  };
  const double before = gradient_square();
  EXPECT_GT(before, 0);
  StateKeeper memory;
  space.vectors.visit_state(memory);
  EXPECT_EQ(gradient_square(), before);
}

}  // namespace
}  // namespace distbelief
