// The training operators of ONNX (domain ai.onnx.preview.training) against our update rules. An operator takes the rate
// R, the number T of updates before this one, then all values X, all gradients G and all of each slot, and returns the
// new X and slots in that order.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "node_case.h"
#include "params/update_rule.h"

namespace distbelief {
namespace {

/// Runs our rule on a node test, then compares values and slots.
void expect_same(const NodeCase& test, const RuleOptions& options, float rate, std::uint64_t count) {
  const auto rule = make_rule(options);
  const auto slots = static_cast<std::size_t>(rule->slots());
  const std::size_t values = (test.inputs().size() - 2) / (2 + slots);
  ASSERT_EQ(test.inputs().size(), 2 + values * (2 + slots));
  ASSERT_EQ(test.outputs().size(), values * (1 + slots));
  for (std::size_t i = 0; i < values; ++i) {
    const NodeTensor& gradient = test.inputs()[2 + values + i];
    std::vector<NodeTensor> ours = {test.inputs()[2 + i]};
    for (std::size_t slot = 0; slot < slots; ++slot) {
      ours.push_back(test.inputs()[2 + values * (2 + slot) + i]);
    }
    std::vector<float*> places;
    for (std::size_t slot = 0; slot < slots; ++slot) {
      places.push_back(ours[1 + slot].values.data());
    }
    rule->apply({rate, test.number("norm_coefficient", 0), count}, ours[0].values, gradient.values, places);
    for (std::size_t output = 0; output <= slots; ++output) {
      const NodeTensor& expected = test.outputs()[values * output + i];
      ASSERT_EQ(ours[output].shape, expected.shape);
      for (std::size_t element = 0; element < expected.values.size(); ++element) {
        const float want = expected.values[element];
        EXPECT_NEAR(ours[output].values[element], want, 1e-6 * std::max(1.0F, std::abs(want))) << expected.name;
      }
    }
  }
}

float rate_of(const NodeCase& test) { return test.inputs()[0].values.at(0); }
std::uint64_t updates_before(const NodeCase& test) { return static_cast<std::uint64_t>(test.inputs()[1].values.at(0)); }

void expect_adagrad(const std::string& name) {
  const NodeCase test = NodeCase::named(name);
  ASSERT_EQ(test.op(), "Adagrad");
  const auto before = static_cast<float>(updates_before(test));
  const float rate = rate_of(test) / (1 + before * test.number("decay_factor", 0));
  expect_same(test, {.name = "adagrad", .epsilon = test.number("epsilon", 1e-6F)}, rate, updates_before(test) + 1);
}

void expect_momentum(const std::string& name, const std::string& mode) {
  const NodeCase test = NodeCase::named(name);
  ASSERT_EQ(test.op(), "Momentum");
  ASSERT_EQ(test.text("mode", ""), mode);
  const RuleOptions options = {.name = mode == "standard" ? "momentum" : mode,
                               .momentum = test.number("alpha", 0),
                               .dampening = 1.0 - test.number("beta", 0)};
  expect_same(test, options, rate_of(test), updates_before(test) + 1);
}

/// ONNX leaves the correction of the bias out when T is 0: as ours is after very many updates.
void expect_adam(const std::string& name, float default_epsilon) {
  const NodeCase test = NodeCase::named(name);
  ASSERT_EQ(test.op(), "Adam");
  ASSERT_EQ(updates_before(test), 0U);
  ASSERT_EQ(test.number("norm_coefficient_post", 0), 0);
  const RuleOptions options = {.name = "adam",
                               .beta1 = test.number("alpha", 0.9F),
                               .beta2 = test.number("beta", 0.999F),
                               .epsilon = test.number("epsilon", default_epsilon)};
  expect_same(test, options, rate_of(test), 1'000'000'000);
}

TEST(OnnxOptimizer, AdagradAgrees) { expect_adagrad("test_adagrad"); }
TEST(OnnxOptimizer, AdagradOfSeveralTensorsAgrees) { expect_adagrad("test_adagrad_multiple"); }
TEST(OnnxOptimizer, MomentumAgrees) { expect_momentum("test_momentum", "standard"); }
TEST(OnnxOptimizer, MomentumOfSeveralTensorsAgrees) { expect_momentum("test_momentum_multiple", "standard"); }
TEST(OnnxOptimizer, NesterovMomentumAgrees) { expect_momentum("test_nesterov_momentum", "nesterov"); }
TEST(OnnxOptimizer, AdamAgrees) { expect_adam("test_adam", 1e-6F); }
/// ONNX 1.12 computed these outputs with epsilon = 0.01 and forgot it in the model; later versions have it there.
TEST(OnnxOptimizer, AdamOfSeveralTensorsAgrees) { expect_adam("test_adam_multiple", 1e-2F); }

TEST(OnnxOptimizer, MissingTestDataIsAnErrorAndNoPass) {
  EXPECT_THROW(NodeCase::named("test_no_such_node"), FileError);
}

}  // namespace
}  // namespace distbelief
