#include "graph/layers/sparse_conv_gradient.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/parallel.h"
#include "base/random.h"
#include "tensor/buffer.h"

namespace distbelief {
namespace {

constexpr std::int64_t kSparseImages = 3, kSparseHeight = 9, kSparseWidth = 12;

struct Case {
  std::int64_t channels, filters, kernel, stride, padding;
  bool thin;
};

std::vector<float> random_numbers(std::int64_t count, std::uint64_t stream, float density) {
  const CounterRandom random(4, RandomUse::generate);
  std::vector<float> numbers;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::uint64_t>(i);
    numbers.push_back(random.uniform(stream + 100, index) < density ? random.normal(stream, index) : 0.0F);
  }
  return numbers;
}

/// Where element (n, c, y, x) lies when channels are in blocks of eight.
std::size_t blocked(std::int64_t n, std::int64_t c, std::int64_t y, std::int64_t x, std::int64_t channels,
                    std::int64_t height, std::int64_t width) {
  const std::int64_t blocks = (channels + 7) / 8;
  return static_cast<std::size_t>((((n * blocks + c / 8) * height + y) * width + x) * 8 + c % 8);
}

void check_against_plain_loops(const Case& c, int threads) {
  const Shape image = {kSparseImages, c.channels, kSparseHeight, kSparseWidth};
  const Window window{
      .kernel = {c.kernel, c.kernel}, .stride = {c.stride, c.stride}, .padding = {c.padding, c.padding}};
  const Extent places = {(kSparseHeight + 2 * c.padding - c.kernel) / c.stride + 1,
                         (kSparseWidth + 2 * c.padding - c.kernel) / c.stride + 1};
  const std::int64_t input_floats =
      kSparseImages * (c.thin ? c.channels : (c.channels + 7) / 8 * 8) * kSparseHeight * kSparseWidth;
  std::vector<float> input = random_numbers(input_floats, 1, 1.0F);
  const auto input_at = [&](std::int64_t n, std::int64_t ch, std::int64_t y, std::int64_t x) {
    return c.thin ? static_cast<std::size_t>(((n * c.channels + ch) * kSparseHeight + y) * kSparseWidth + x)
                  : blocked(n, ch, y, x, c.channels, kSparseHeight, kSparseWidth);
  };
  const std::vector<float> gradient = random_numbers(kSparseImages * c.filters * places.height * places.width, 2, 0.2F);
  const std::int64_t taps = c.channels * c.kernel * c.kernel;
  const std::vector<float> weights = random_numbers(c.filters * taps, 3, 1.0F);
  std::vector<float> weight_gradient(weights.size());
  std::vector<float> bias_gradient(static_cast<std::size_t>(c.filters));
  std::vector<float> input_gradient(input.size(), 7.0F);

  ASSERT_TRUE(SparseConvGradient::fits(image, c.filters, 1, window));
  const SparseConvGradient sparse(image, c.filters, window, places, c.thin);
  const Buffer scratch(sparse.scratch_bytes(threads));
  set_thread_count(threads);
  sparse.run(input.data(), gradient.data(), weights.data(), weight_gradient.data(), bias_gradient.data(),
             c.thin ? nullptr : input_gradient.data(), scratch.data(), threads);
  set_thread_count(1);

  std::vector<double> expected_weights(weights.size());
  std::vector<double> expected_bias(bias_gradient.size());
  std::vector<double> expected_input(input.size());
  for (std::int64_t n = 0; n < kSparseImages; ++n) {
    for (std::int64_t f = 0; f < c.filters; ++f) {
      for (std::int64_t y = 0; y < places.height; ++y) {
        for (std::int64_t x = 0; x < places.width; ++x) {
          const double given = gradient[blocked(n, f, y, x, c.filters, places.height, places.width)];
          expected_bias[static_cast<std::size_t>(f)] += given;
          for (std::int64_t tap = 0; tap < taps; ++tap) {
            const std::int64_t channel = tap / (c.kernel * c.kernel);
            const std::int64_t row = y * c.stride + tap / c.kernel % c.kernel - c.padding;
            const std::int64_t column = x * c.stride + tap % c.kernel - c.padding;
            if (row >= 0 && row < kSparseHeight && column >= 0 && column < kSparseWidth) {
              const auto weight = static_cast<std::size_t>(f * taps + tap);
              expected_weights[weight] += given * input[input_at(n, channel, row, column)];
              expected_input[input_at(n, channel, row, column)] += given * weights[weight];
            }
          }
        }
      }
    }
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    ASSERT_NEAR(weight_gradient[i], expected_weights[i], 2e-4) << "weight " << i;
  }
  for (std::size_t i = 0; i < bias_gradient.size(); ++i) {
    ASSERT_NEAR(bias_gradient[i], expected_bias[i], 2e-4) << "bias " << i;
  }
  for (std::size_t i = 0; !c.thin && i < input.size(); ++i) {
    ASSERT_NEAR(input_gradient[i], expected_input[i], 2e-4) << "input " << i;
  }
}

TEST(SparseConvGradient, EqualsPlainLoopsForAllWindows) {
  for (const Case& c : {Case{1, 8, 5, 1, 2, true}, Case{3, 16, 7, 2, 3, true}, Case{4, 8, 8, 1, 0, true},
                        Case{8, 8, 1, 1, 0, false}, Case{16, 8, 5, 1, 2, false}, Case{24, 16, 3, 2, 1, false},
                        Case{5, 8, 3, 1, 1, false}, Case{8, 8, 2, 3, 0, false}, Case{8, 8, 6, 1, 0, false},
                        Case{8, 8, 7, 2, 3, false}, Case{8, 8, 4, 1, 1, false}, Case{8, 8, 8, 1, 4, false}}) {
    for (const int threads : {1, 2, 5}) {
      SCOPED_TRACE(testing::Message() << c.channels << " channels, kernel " << c.kernel << ", threads " << threads);
      check_against_plain_loops(c, threads);
    }
  }
}

TEST(SparseConvGradient, PaysOnlyWhenMostIsZero) {
  const SparseConvGradient sparse({1, 8, 9, 12}, 8, Window{.kernel = {1, 1}}, {9, 12}, false);
  EXPECT_TRUE(sparse.worthwhile(random_numbers(8 * 9 * 12, 5, 0.2F).data()));
  EXPECT_FALSE(sparse.worthwhile(random_numbers(8 * 9 * 12, 5, 0.6F).data()));
}

}  // namespace
}  // namespace distbelief
