#include "graph/layers/dropout.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/layer_run.h"

namespace distbelief {
namespace {

/// The mask of some samples, as zeros and scaled ones.
std::vector<float> mask(float rate, std::vector<std::uint64_t> ids, std::uint64_t epoch = 0, std::uint64_t salt = 0,
                        std::int64_t width = 1000) {
  const Dropout layer({.rate = rate, .salt = salt});
  const auto rows = static_cast<std::int64_t>(ids.size());
  LayerRun run(layer, {{{rows, width}, ValueKind::dense}}, {});
  run.inputs[0].assign(static_cast<std::size_t>(rows * width), 1.0F);
  run.step = {.training = true, .seed = 5, .epoch = epoch, .sample_ids = ids};
  run.forward();
  return run.output;
}

TEST(Dropout, DropsItsRateAndKeepsTheMean) {
  for (const float rate : {0.1F, 0.5F, 0.8F}) {
    const std::vector<float> values = mask(rate, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
    double sum = 0;
    double dropped = 0;
    for (const float value : values) {
      sum += value;
      dropped += value == 0 ? 1 : 0;
    }
    EXPECT_NEAR(dropped / 10000, rate, 0.02);
    EXPECT_NEAR(sum / 10000, 1.0, 0.1);
  }
}

TEST(Dropout, MaskOfASampleDoesNotDependOnItsBatch) {
  const std::vector<float> both = mask(0.5F, {11, 42});
  const std::vector<float> alone = mask(0.5F, {42});
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), both.begin() + 1000));
}

TEST(Dropout, MasksDifferByEpochLayerAndSample) {
  const std::vector<float> first = mask(0.5F, {1});
  EXPECT_NE(first, mask(0.5F, {1}, 1));
  EXPECT_NE(first, mask(0.5F, {1}, 0, 1));
  EXPECT_NE(first, mask(0.5F, {2}));
  EXPECT_EQ(first, mask(0.5F, {1}));
}

TEST(Dropout, DoesNothingInInference) {
  const Dropout layer({.rate = 0.5F});
  Engine engine;
  const ValueLayout value = plain_value({2, 9});
  EXPECT_TRUE(layer.compile(engine, std::span(&value, 1), Purpose::inference)->traits().is_view);
  EXPECT_FALSE(layer.compile(engine, std::span(&value, 1), Purpose::training)->traits().is_view);
}

TEST(Dropout, RefusesARateThatIsNoShare) {
  EXPECT_THROW(Dropout({.rate = 1.0F}), InputError);
  EXPECT_THROW(Dropout({.rate = -0.1F}), InputError);
}

}  // namespace
}  // namespace distbelief
