#pragma once

#include <cstddef>

#include "graph/exchanges/tensor_exchange.h"

namespace distbelief {

/// A value of plain layout that processes hold in slices of one axis: how slices and the whole are made of each other.
class SlicedValue {
 public:
  SlicedValue(const Shape& whole, int axis, const TensorExchangeOptions& options);

  /// Memory that gather() and sum_slices() need.
  std::size_t scratch_bytes() const {
    return (static_cast<std::size_t>(outer_ * extent_ * inner_) + count() * floats(position_)) * sizeof(float);
  }

  /// The whole, from this process's slice and those of the others.
  void gather(Exchange& exchange, const float* own, float* whole, std::byte* scratch) const;
  /// This process's slice of the whole.
  void take_own(const float* whole, float* own) const { take(position_, whole, own); }
  /// This process's slice of the sum of all wholes.
  void sum_slices(Exchange& exchange, const float* whole, float* own, std::byte* scratch) const;

 private:
  std::size_t count() const { return bounds_.size() - 1; }
  std::int64_t size(std::size_t i) const { return (bounds_[i + 1] - bounds_[i]) * inner_; }
  std::size_t floats(std::size_t i) const { return static_cast<std::size_t>(outer_ * size(i)); }
  void take(std::size_t i, const float* whole, float* slice) const;
  void put(std::size_t i, const float* slice, float* whole) const;

  const std::vector<std::int64_t> bounds_;
  const std::size_t position_;
  std::int64_t outer_ = 1;  ///< elements before the axis
  std::int64_t extent_ = 1;
  std::int64_t inner_ = 1;  ///< elements after it
};

}  // namespace distbelief
