#include "graph/layers/thin_conv_gradient.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/parallel.h"
#include "base/random.h"
#include "tensor/buffer.h"

namespace distbelief {
namespace {

std::vector<float> random_numbers(std::int64_t count, std::uint64_t stream) {
  const CounterRandom random(4, RandomUse::generate);
  std::vector<float> numbers;
  for (std::int64_t i = 0; i < count; ++i) {
    numbers.push_back(random.normal(stream, static_cast<std::uint64_t>(i)));
  }
  return numbers;
}

struct ThinCase {
  std::int64_t channels, filters, kernel, stride, padding;
};

void check_thin_gradient(const ThinCase& c, int threads) {
  const Shape image = {3, c.channels, 9, 12};
  const Window window{
      .kernel = {c.kernel, c.kernel}, .stride = {c.stride, c.stride}, .padding = {c.padding, c.padding}};
  const Extent places = {(9 + 2 * c.padding - c.kernel) / c.stride + 1, (12 + 2 * c.padding - c.kernel) / c.stride + 1};
  const std::vector<float> input = random_numbers(image.elements(), 1);
  const std::int64_t pixels = places.height * places.width;
  const std::vector<float> gradient = random_numbers(3 * c.filters * pixels, 2);  // [n][filter / 8][y][x][filter % 8]
  const std::int64_t taps = c.channels * c.kernel * c.kernel;
  std::vector<float> weights(static_cast<std::size_t>(c.filters * taps));
  std::vector<float> bias(static_cast<std::size_t>(c.filters));

  ASSERT_TRUE(ThinConvGradient::fits(image, c.filters, 1, window));
  const ThinConvGradient thin(image, c.filters, window, places);
  const Buffer scratch(thin.scratch_bytes(threads));
  set_thread_count(threads);
  thin.run(input.data(), gradient.data(), weights.data(), bias.data(), scratch.data(), threads);
  set_thread_count(1);

  for (std::int64_t f = 0; f < c.filters; ++f) {
    const auto given = [&](std::int64_t n, std::int64_t y, std::int64_t x) {
      return gradient[static_cast<std::size_t>(
          (((n * c.filters / 8 + f / 8) * places.height + y) * places.width + x) * 8 + f % 8)];
    };
    double bias_sum = 0;
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      const std::int64_t channel = tap / (c.kernel * c.kernel);
      double sum = 0;
      bias_sum = 0;
      for (std::int64_t n = 0; n < 3; ++n) {
        for (std::int64_t y = 0; y < places.height; ++y) {
          for (std::int64_t x = 0; x < places.width; ++x) {
            const std::int64_t row = y * c.stride + tap / c.kernel % c.kernel - c.padding;
            const std::int64_t column = x * c.stride + tap % c.kernel - c.padding;
            bias_sum += given(n, y, x);
            if (row >= 0 && row < 9 && column >= 0 && column < 12) {
              sum += static_cast<double>(given(n, y, x)) *
                     input[static_cast<std::size_t>(((n * c.channels + channel) * 9 + row) * 12 + column)];
            }
          }
        }
      }
      EXPECT_NEAR(weights[static_cast<std::size_t>(f * taps + tap)], sum, 2e-4) << "filter " << f << " tap " << tap;
    }
    EXPECT_NEAR(bias[static_cast<std::size_t>(f)], bias_sum, 2e-4);
  }
}

TEST(ThinConvGradient, EqualsPlainLoopsForAllWindows) {
  for (const ThinCase& c :
       {ThinCase{1, 8, 1, 1, 0}, ThinCase{1, 16, 5, 1, 2}, ThinCase{3, 8, 7, 2, 3}, ThinCase{4, 8, 3, 2, 1},
        ThinCase{2, 8, 9, 1, 4}, ThinCase{1, 8, 2, 3, 0}, ThinCase{3, 8, 6, 1, 0}, ThinCase{1, 8, 4, 1, 1}}) {
    for (const int threads : {1, 2, 5}) {
      SCOPED_TRACE(testing::Message() << c.channels << " channels, kernel " << c.kernel << ", threads " << threads);
      check_thin_gradient(c, threads);
    }
  }
}

}  // namespace
}  // namespace distbelief
