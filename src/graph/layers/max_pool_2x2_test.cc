#include "graph/layers/max_pool_2x2.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"
#include "graph/layers/channel_block.h"
#include "tensor/buffer.h"

namespace distbelief {
namespace {

constexpr std::int64_t kImages = 2, kBlocks = 2, kHeight = 5, kWidth = 6;

std::size_t at(std::int64_t plane, std::int64_t y, std::int64_t x, std::int64_t channel, std::int64_t height,
               std::int64_t width) {
  return static_cast<std::size_t>(((plane * height + y) * width + x) * 8 + channel);
}

struct Pooled {
  std::vector<float> output = std::vector<float>(kImages * kBlocks * 2 * 3 * 8);
  std::vector<float> gradient = std::vector<float>(kImages * kBlocks * kHeight * kWidth * 8, 77.0F);
};

Pooled pool(const std::vector<float>& input, const std::vector<float>& output_gradient, bool relu) {
  const Shape image = {kImages, kBlocks * 8, kHeight, kWidth};
  const ValueLayout layout{{image, ValueKind::dense}, channel_blocked_layout(image)};
  PoolingOptions options;
  options.window = {.kernel = {2, 2}, .stride = {2, 2}};
  options.relu = relu;
  const auto kernel =
      compile_max_pool_2x2(layout, Shape{kImages, kBlocks * 8, 2, 3}, options.window, options, Purpose::training);
  EXPECT_NE(kernel, nullptr);
  Pooled result;
  const Buffer workspace(kernel->traits().workspace_bytes);
  KernelMemory memory;
  memory.inputs = {input.data()};
  memory.output = result.output.data();
  memory.output_gradient = output_gradient.data();
  memory.input_gradients = {result.gradient.data()};
  memory.workspace = workspace.data();
  kernel->bind(memory);
  kernel->forward({.training = true});
  kernel->backward({.training = true});
  return result;
}

TEST(MaxPool2x2, GivesEachWindowsMaximumAndItsGradientToTheWinner) {
  const CounterRandom random(2, RandomUse::generate);
  std::vector<float> input(kImages * kBlocks * kHeight * kWidth * 8);
  std::vector<float> given(kImages * kBlocks * 2 * 3 * 8);
  for (std::size_t i = 0; i < input.size(); ++i) {
    input[i] = random.normal(1, i) - 0.5F;
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    given[i] = random.normal(2, i);
  }
  for (const bool relu : {false, true}) {
    const Pooled pooled = pool(input, given, relu);
    for (std::int64_t plane = 0; plane < kImages * kBlocks; ++plane) {
      for (std::int64_t y = 0; y < 2; ++y) {
        for (std::int64_t x = 0; x < 3; ++x) {
          for (std::int64_t c = 0; c < 8; ++c) {
            float best = -std::numeric_limits<float>::infinity();
            for (int i = 0; i < 4; ++i) {
              best = std::max(best, input[at(plane, 2 * y + i / 2, 2 * x + i % 2, c, kHeight, kWidth)]);
            }
            const bool clamped = relu && best <= 0;
            const std::size_t place = at(plane, y, x, c, 2, 3);
            EXPECT_EQ(pooled.output[place], clamped ? 0.0F : best);
            for (int i = 0; i < 4; ++i) {
              const std::size_t source = at(plane, 2 * y + i / 2, 2 * x + i % 2, c, kHeight, kWidth);
              EXPECT_EQ(pooled.gradient[source], !clamped && input[source] == best ? given[place] : 0.0F);
            }
          }
        }
      }
      for (std::int64_t x = 0; x < kWidth; ++x) {
        EXPECT_EQ(pooled.gradient[at(plane, kHeight - 1, x, 0, kHeight, kWidth)], 0.0F) << "the row that no window has";
      }
    }
  }
}

TEST(MaxPool2x2, LetsNaNThrough) {
  std::vector<float> input(kImages * kBlocks * kHeight * kWidth * 8, -1.0F);
  for (int i = 0; i < 4; ++i) {
    input[at(i, i / 2, i % 2, 3, kHeight, kWidth)] = std::nanf("");
  }
  const Pooled pooled = pool(input, std::vector<float>(kImages * kBlocks * 2 * 3 * 8, 1.0F), true);
  for (int plane = 0; plane < 4; ++plane) {
    EXPECT_TRUE(std::isnan(pooled.output[at(plane, 0, 0, 3, 2, 3)]));
    EXPECT_EQ(pooled.output[at(plane, 0, 0, 2, 2, 3)], 0.0F);
  }
}

}  // namespace
}  // namespace distbelief
