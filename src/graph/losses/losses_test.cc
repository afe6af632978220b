#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/parallel.h"
#include "graph/layer_check.h"
#include "graph/losses/loss_factory.h"

namespace distbelief {
namespace {

/// A loss with predictions and targets of rows × columns.
struct LossCase {
  std::string name;
  std::int64_t columns;
  std::int64_t classes;  ///< 0: float targets
};

class LossContract : public testing::TestWithParam<LossCase> {
 protected:
  static constexpr std::int64_t kRows = 6;

  void SetUp() override {
    const LossCase& test = GetParam();
    loss_ = make_loss(test.name);
    prediction_ = spread_numbers(kRows * test.columns, 1);
    for (float& score : prediction_) {
      score += 0.013F;  // away from hinge's bend at 1
    }
    for (std::int64_t r = 0; r < kRows && test.classes > 0; ++r) {
      classes_.push_back(static_cast<std::int32_t>((r * 5 + 1) % test.classes));
    }
    for (std::int64_t i = 0; i < kRows * test.columns && test.classes == 0; ++i) {
      values_.push_back(static_cast<float>(i % 2));
    }
  }

  LossSums evaluate(float* gradient = nullptr) const {
    return loss_->evaluate(prediction_.data(), kRows, GetParam().columns, {classes_, values_}, gradient);
  }

  LossPtr loss_;
  std::vector<float> prediction_;
  std::vector<std::int32_t> classes_;
  std::vector<float> values_;
};

TEST_P(LossContract, GradientMatchesFiniteDifferences) {
  std::vector<float> gradient(prediction_.size());
  evaluate(gradient.data());
  expect_derivative(GetParam().name, prediction_, gradient, 1e-3, [&] { return evaluate().loss; });
}

TEST_P(LossContract, FitsItsOwnShapesOnly) {
  const LossCase& test = GetParam();
  const std::int64_t targets = test.classes > 0 ? 0 : test.columns;
  loss_->check_fit({1, test.columns}, test.classes, targets);
  EXPECT_THROW(loss_->check_fit({1, test.columns + 2}, test.classes, targets), ShapeError);
  EXPECT_THROW(loss_->check_fit({1, test.columns}, 0, 0), ShapeError);
  EXPECT_EQ(loss_->wants_classes(), test.classes > 0);
  EXPECT_EQ(loss_->type(), test.name);
}

TEST_P(LossContract, LargeScoresGiveFiniteLosses) {
  for (float& score : prediction_) {
    score *= 500.0F;
  }
  std::vector<float> gradient(prediction_.size());
  EXPECT_TRUE(std::isfinite(evaluate(gradient.data()).loss));
  for (const float value : gradient) {
    EXPECT_TRUE(std::isfinite(value));
  }
}

TEST_P(LossContract, CountsRowsAndThoseThatAreRight) {
  EXPECT_EQ(evaluate().rows, kRows);
  if (GetParam().classes == 0) {
    return;
  }
  const std::int64_t columns = GetParam().columns;
  for (std::int64_t r = 0; r < kRows; ++r) {
    float* row = prediction_.data() + r * columns;
    const std::int32_t label = classes_[static_cast<std::size_t>(r)];
    for (std::int64_t c = 0; c < columns; ++c) {
      row[c] = (columns == 1 ? label == 1 : label == c) ? 3.0F : -3.0F;
    }
  }
  EXPECT_EQ(evaluate().correct, kRows);
  for (float& score : prediction_) {
    score = -score;
  }
  EXPECT_EQ(evaluate().correct, 0);
}

TEST_P(LossContract, AddsUpTheSameOnAnyNumberOfThreads) {
  const double one = evaluate().loss;
  set_thread_count(2);
  EXPECT_EQ(one, evaluate().loss);
  set_thread_count(1);
}

INSTANTIATE_TEST_SUITE_P(Losses, LossContract,
                         testing::Values(LossCase{"softmax_cross_entropy", 5, 5},
                                         LossCase{"sigmoid_cross_entropy", 5, 5},
                                         LossCase{"sigmoid_cross_entropy", 1, 2},
                                         LossCase{"binary_cross_entropy", 3, 0}, LossCase{"hinge", 5, 5},
                                         LossCase{"hinge", 1, 2}, LossCase{"mean_squared_error", 3, 0}),
                         [](const auto& test) { return test.param.name + std::to_string(test.param.columns); });

TEST(LossFactory, KnowsItsNamesAndOffersTheNearest) {
  for (const std::string_view name : loss_names()) {
    EXPECT_EQ(make_loss(name)->type(), name);
  }
  try {
    make_loss("hing");
    ADD_FAILURE() << "no error";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("did you mean 'hinge'"));
  }
}

TEST(SigmoidCrossEntropy, TurnsScoresIntoProbabilities) {
  std::vector<float> row = {0.0F, 100.0F, -100.0F};
  make_loss("sigmoid_cross_entropy")->to_probabilities(row);
  EXPECT_FLOAT_EQ(row[0], 0.5F);
  EXPECT_FLOAT_EQ(row[1], 1.0F);
  EXPECT_NEAR(row[2], 0.0F, 1e-6F);
}

}  // namespace
}  // namespace distbelief
