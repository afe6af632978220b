#pragma once

#include <mutex>
#include <span>

#include "params/lock_free_shard.h"
#include "params/parameter_table.h"
#include "tensor/buffer.h"

namespace distbelief {

/// The sum of the gradients of a push unit's batches, which several threads compute.
class UnitGradient {
 public:
  /// `table` is borrowed.
  explicit UnitGradient(const ParameterTable& table);

  /// Thread-safe. Gradients are multiplied with `factor`, statistics that are averaged are not. Takes time in
  /// proportion to what has no rows and the touched rows.
  void add(const SparseGradient& gradient, float factor);

  // Only while no other thread is in here.

  /// Over the flat space: sums, 0 where there was nothing, and of statistics the mean. Valid until the next call.
  std::span<const float> total();
  void clear();

 private:
  const ParameterTable& table_;
  std::mutex mutex_;
  Buffer sum_;       // these two: guarded by mutex_
  int batches_ = 0;  // since total()
};

}  // namespace distbelief
