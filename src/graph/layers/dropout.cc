#include "graph/layers/dropout.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "base/multiversion.h"
#include "base/parallel.h"
#include "base/random.h"

namespace distbelief {
namespace {

// Eight decisions come from one draw of 128 bits, 16 bits each, and are kept as one byte.
constexpr std::int64_t kDecisions = 8;

/// Spreads its argument over all 64 bits (the finalizer of splitmix64).
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

DISTBELIEF_MULTIVERSION void draw_mask(const CounterRandom& random, std::uint64_t stream, std::uint64_t high,
                                       std::uint32_t threshold, std::uint8_t* mask, std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes; ++i) {
    const auto words = random.words(stream, high + static_cast<std::uint64_t>(i));
    std::uint32_t kept = 0;
    for (std::uint32_t w = 0; w < 4; ++w) {
      kept |= static_cast<std::uint32_t>((words[w] & 0xFFFFU) >= threshold) << (2 * w);
      kept |= static_cast<std::uint32_t>((words[w] >> 16) >= threshold) << (2 * w + 1);
    }
    mask[i] = static_cast<std::uint8_t>(kept);
  }
}

/// Lets the mask begin at another of its decisions.
void shift_mask(std::uint8_t* mask, std::int64_t bytes, int decisions) {
  if (decisions == 0) {
    return;
  }
  for (std::int64_t i = 0; i < bytes; ++i) {
    const unsigned next = i + 1 < bytes ? mask[i + 1] : 0;
    mask[i] = static_cast<std::uint8_t>((mask[i] >> decisions) | (next << (kDecisions - decisions)));
  }
}

using Floats = float __attribute__((vector_size(32), aligned(4), may_alias));
using Bits = std::int32_t __attribute__((vector_size(32), aligned(4), may_alias));

DISTBELIEF_MULTIVERSION void apply_mask(const std::uint8_t* mask, float scale, const float* in, float* out,
                                        std::int64_t count) {
  const Bits places = {1, 2, 4, 8, 16, 32, 64, 128};
  std::int64_t i = 0;
  for (; i + kDecisions <= count; i += kDecisions) {
    const Bits kept = ((Bits{} + mask[i / kDecisions]) & places) != 0;  // all ones, or zero
    const Floats scaled = *reinterpret_cast<const Floats*>(in + i) * scale;
    *reinterpret_cast<Bits*>(out + i) = reinterpret_cast<const Bits&>(scaled) & kept;
  }
  for (; i < count; ++i) {
    out[i] = (mask[i / kDecisions] & (1U << (i % kDecisions))) != 0 ? in[i] * scale : 0.0F;
  }
}

class DropoutKernel : public Kernel {
 public:
  DropoutKernel(const ValueLayout& value, const DropoutOptions& options)
      : Kernel(value),
        salt_(options.salt),
        rows_(value.spec.shape[0]),
        width_(value.spec.shape.elements() / rows_),
        first_byte_(options.first / kDecisions),
        shift_(static_cast<int>(options.first % kDecisions)),
        mask_bytes_((shift_ + width_ + kDecisions - 1) / kDecisions),
        threshold_(std::min(65535U, static_cast<std::uint32_t>(std::lround(options.rate * 65536.0F)))),
        scale_(65536.0F / static_cast<float>(65536U - threshold_)) {
    traits_ = {.workspace_bytes = static_cast<std::size_t>(rows_ * mask_bytes_),
               .backward_reads_inputs = false,
               .forward_in_place = true,
               .backward_in_place = true};
  }

  void forward(const StepContext& step) override {
    const CounterRandom random(step.seed, RandomUse::dropout);
    for_rows([&](std::int64_t r) {
      const std::uint64_t sample = step.sample_ids[static_cast<std::size_t>(r)];
      const std::uint64_t place = mixed(mixed(mixed(salt_) + step.epoch) + sample);
      const std::uint64_t other = mixed(place + salt_);  // 80 bits in all: places do not meet by chance
      draw_mask(random, place, (other << 32) + static_cast<std::uint64_t>(first_byte_), threshold_, mask(r),
                mask_bytes_);
      shift_mask(mask(r), mask_bytes_, shift_);
      apply_mask(mask(r), scale_, static_cast<const float*>(memory_.inputs[0]) + r * width_,
                 memory_.output + r * width_, width_);
    });
  }

  void backward(const StepContext& /*step*/) override {
    for_rows([&](std::int64_t r) {
      apply_mask(mask(r), scale_, memory_.output_gradient + r * width_, memory_.input_gradients[0] + r * width_,
                 width_);
    });
  }

 private:
  std::uint8_t* mask(std::int64_t row) const {
    return reinterpret_cast<std::uint8_t*>(memory_.workspace) + row * mask_bytes_;
  }

  template <typename Body>
  void for_rows(const Body& body) const {
    parallel_for(rows_, std::max<std::int64_t>(1, 4096 / width_), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        body(r);
      }
    });
  }

  const std::uint64_t salt_;
  const std::int64_t rows_;
  const std::int64_t width_;
  const std::int64_t first_byte_;  ///< these two: where the first element's decision is
  const int shift_;
  const std::int64_t mask_bytes_;  ///< of one row
  const std::uint32_t threshold_;
  const float scale_;
};

class IdentityKernel : public Kernel {
 public:
  explicit IdentityKernel(const ValueLayout& value)
      : Kernel(value, {.backward_reads_inputs = false, .is_view = true}) {}
  void forward(const StepContext& /*step*/) override {}
  void backward(const StepContext& /*step*/) override {}
};

}  // namespace

Dropout::Dropout(DropoutOptions options) : options_(options) {
  if (!(options.rate >= 0 && options.rate < 1)) {
    throw InputError(fmt::format("dropout needs a rate of 0 or more and less than 1, got {}", options.rate));
  }
}

ValueSpec Dropout::output(ValueSpecs inputs) const {
  expect_dense_inputs(*this, inputs, 1);
  return inputs[0];
}

std::vector<Cut> Dropout::cuts(ValueSpecs inputs) const {
  return inputs[0].shape.rank() == 2 || inputs[0].shape.rank() == 4 ? std::vector{Cut::channels} : std::vector<Cut>{};
}

LayerPart Dropout::part(Cut /*cut*/, ValueSpecs inputs, const Slice& slice) const {
  const Shape& value = inputs[0].shape;
  DropoutOptions options = options_;
  options.first += slice.begin * (value.elements() / value[0] / value[1]);
  return {.layer = std::make_shared<Dropout>(options)};
}

std::unique_ptr<Kernel> Dropout::compile(const Engine& /*engine*/, ValueLayouts inputs, Purpose purpose) const {
  if (purpose == Purpose::inference || options_.rate == 0) {
    return std::make_unique<IdentityKernel>(inputs[0]);
  }
  return std::make_unique<DropoutKernel>(inputs[0], options_);
}

}  // namespace distbelief
