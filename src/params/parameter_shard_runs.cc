// What a ParameterShard does with a gradient of which only some runs are not 0.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "params/parameter_shard.h"
#include "tensor/vector_ops.h"

namespace distbelief {
namespace {

constexpr std::int64_t kPacked = 256;  // floats: calling the rule then costs little, and all of it stays in cache

std::size_t as_count(std::int64_t value) { return static_cast<std::size_t>(value); }

Range in_range(const FloatRun& run, std::uint32_t origin) {
  return {std::int64_t{run.begin} - origin, static_cast<std::int64_t>(run.end()) - origin};
}

/// Whether the runs are ascending places of a range of so many floats.
bool are_places(const FloatRuns& places, std::int64_t size, std::int64_t& floats) {
  std::int64_t end = 0;
  floats = 0;
  for (const FloatRun& run : places.runs) {
    const Range range = in_range(run, places.origin);
    if (range.begin < end || range.end > size) {
      return false;
    }
    end = range.end;
    floats += range.size();
  }
  return true;
}

/// Numbers from here and there, side by side while a rule changes them.
template <std::size_t kSlots>
struct alignas(64) PackedFloats {
  float gradient[kPacked];
  float values[kPacked];
  float slots[kSlots][kPacked];
  std::array<Range, kPacked> from;
  std::size_t ranges = 0;
  std::int64_t floats = 0;

  template <typename Visit>  // with a place there and one here
  void for_each_float(const Visit& visit) const {
    std::size_t here = 0;
    for (std::size_t i = 0; i < ranges; ++i) {
      for (std::int64_t there = from[i].begin; there < from[i].end; ++there, ++here) {
        visit(as_count(there), here);
      }
    }
  }
};

}  // namespace

UpdateReport ParameterShard::apply(PushId push, const GradientRuns& gradient, float scale, const UpdateOptions& options,
                                   Version seen) {
  std::int64_t floats = 0;
  check(are_places(gradient.places, range_.size(), floats), "the runs of a gradient are ascending places of the shard");
  check(std::ssize(gradient.floats) == floats, "a gradient has the floats of its runs");
  const std::scoped_lock lock(mutex_);
  UpdateReport report;
  if (!enter(push, seen, report)) {
    return report;
  }
  if (rests_at_zero(options)) {
    const float rate = static_cast<float>(options.rate * weight_of(report, options));
    ++updates_;
    report.finite = apply_runs(gradient, scale, rate, options.clip_value);
    report.version = Version{++version_.value};
    return report;
  }
  const Buffer whole = Buffer::zeroed(as_count(range_.size()) * sizeof(float));
  const float* next = gradient.floats.data();
  for (const FloatRun& run : gradient.places.runs) {
    std::copy_n(next, run.count, whole.as<float>().data() + in_range(run, gradient.places.origin).begin);
    next += run.count;
  }
  const std::span<const float> part = whole.as<float>();
  take(report, std::span(&part, 1), scale, options);
  return report;
}

bool ParameterShard::rests_at_zero(const UpdateOptions& options) const {
  return rule_.rests_at_zero() && !has_averaged_ && options.weight_decay == 0 && options.gather <= 1 &&
         gathered_.count == 0 && options.clip_norm <= 0 && !options.drop_nonfinite;  // a length has an order of adding
}

bool ParameterShard::apply_runs(const GradientRuns& gradient, float scale, float rate, float clip) {
  PackedFloats<kMaxSlots> packed;
  std::array<float*, kMaxSlots> slots = {};
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    slots[slot] = packed.slots[slot];
  }
  bool finite = true;
  const auto apply_packed = [&] {
    const std::size_t count = as_count(packed.floats);
    packed.for_each_float([&](std::size_t there, std::size_t here) { packed.values[here] = values_[there]; });
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      const std::span<float> own = slots_[slot].as<float>();
      packed.for_each_float([&](std::size_t there, std::size_t here) { packed.slots[slot][here] = own[there]; });
    }
    rule_.apply({rate, 0, updates_}, {packed.values, count}, {packed.gradient, count}, {slots.data(), slots_.size()});
    packed.for_each_float([&](std::size_t there, std::size_t here) { values_[there] = packed.values[here]; });
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      const std::span<float> own = slots_[slot].as<float>();
      packed.for_each_float([&](std::size_t there, std::size_t here) { own[there] = packed.slots[slot][here]; });
    }
    finite = all_finite(packed.values, packed.floats) && finite;
    packed.ranges = 0;
    packed.floats = 0;
  };
  const float* floats = gradient.floats.data();
  auto piece = pieces_.cbegin();  // what lies in none is frozen, or a gap
  for (const FloatRun& run : gradient.places.runs) {
    const Range range = in_range(run, gradient.places.origin);
    piece = std::partition_point(piece, pieces_.cend(), [&](const Piece& one) { return one.range.end <= range.begin; });
    for (auto one = piece; one != pieces_.cend() && one->range.begin < range.end; ++one) {
      const std::int64_t end = std::min(one->range.end, range.end);
      for (std::int64_t begin = std::max(one->range.begin, range.begin); begin < end;) {
        const std::int64_t count = std::min(end - begin, kPacked - packed.floats);
        for (std::int64_t i = 0; i < count; ++i) {
          const float raw = scale * floats[begin - range.begin + i];
          const float low = clip > 0 && raw < -clip ? -clip : raw;  // NaN stays NaN
          packed.gradient[packed.floats + i] = clip > 0 && low > clip ? clip : low;
        }
        packed.from[packed.ranges++] = {begin, begin + count};
        packed.floats += count;
        begin += count;
        if (packed.floats == kPacked) {
          apply_packed();
        }
      }
    }
    floats += run.count;
  }
  apply_packed();
  return finite;
}

Version ParameterShard::read(const FloatRuns& places, std::span<float> out) const {
  std::int64_t floats = 0;
  check(are_places(places, range_.size(), floats) && std::ssize(out) == floats, "read() has room for its runs");
  const std::scoped_lock lock(mutex_);
  float* next = out.data();
  for (const FloatRun& run : places.runs) {
    const float* from = values_.data() + in_range(run, places.origin).begin;
    for (std::uint32_t i = 0; i < run.count; ++i) {
      *next++ = from[i];
    }
  }
  return version_;
}

}  // namespace distbelief
