#include "graph/exchanges/sliced_value.h"

#include <algorithm>

#include "base/parallel.h"
#include "tensor/vector_ops.h"

namespace distbelief {
namespace {

constexpr std::int64_t kFloatsAtOnce = 16384;

}  // namespace

SlicedValue::SlicedValue(const Shape& whole, int axis, const TensorExchangeOptions& options)
    : bounds_(options.bounds), position_(static_cast<std::size_t>(options.position)), extent_(whole[axis]) {
  for (int i = 0; i < whole.rank(); ++i) {
    outer_ *= i < axis ? whole[i] : 1;
    inner_ *= i > axis ? whole[i] : 1;
  }
}

void SlicedValue::take(std::size_t i, const float* whole, float* slice) const {
  parallel_for(outer_, std::max<std::int64_t>(1, kFloatsAtOnce / size(i)), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t o = begin; o < end; ++o) {
      std::copy_n(whole + (o * extent_ + bounds_[i]) * inner_, size(i), slice + o * size(i));
    }
  });
}

void SlicedValue::put(std::size_t i, const float* slice, float* whole) const {
  parallel_for(outer_, std::max<std::int64_t>(1, kFloatsAtOnce / size(i)), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t o = begin; o < end; ++o) {
      std::copy_n(slice + o * size(i), size(i), whole + (o * extent_ + bounds_[i]) * inner_);
    }
  });
}

void SlicedValue::gather(Exchange& exchange, const float* own, float* whole, std::byte* scratch) const {
  auto* room = reinterpret_cast<float*>(scratch);
  const std::vector<std::span<const float>> out(count(), std::span(own, floats(position_)));
  std::vector<std::span<float>> in;
  for (std::size_t i = 0; i < count(); ++i) {
    in.emplace_back(room, i == position_ ? 0 : floats(i));
    room += in.back().size();
  }
  exchange.swap(out, in);
  for (std::size_t i = 0; i < count(); ++i) {
    put(i, i == position_ ? own : in[i].data(), whole);
  }
}

void SlicedValue::sum_slices(Exchange& exchange, const float* whole, float* own, std::byte* scratch) const {
  auto* room = reinterpret_cast<float*>(scratch);
  std::vector<std::span<const float>> out(count());
  for (std::size_t i = 0; i < count(); ++i) {
    if (i != position_) {
      take(i, whole, room);
      out[i] = {room, floats(i)};
      room += floats(i);
    }
  }
  std::vector<std::span<float>> in(count());
  for (std::size_t i = 0; i < count(); ++i) {
    if (i != position_) {
      in[i] = {room, floats(position_)};
      room += floats(position_);
    }
  }
  exchange.swap(out, in);
  take(position_, whole, own);
  for (std::size_t i = 0; i < count(); ++i) {
    if (i != position_) {
      add(own, in[i].data(), own, static_cast<std::int64_t>(floats(position_)));
    }
  }
}

}  // namespace distbelief
