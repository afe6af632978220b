#pragma once

#include <cstdint>

namespace distbelief {

/// Hears, while backward still runs, which part of the gradient will not change any more.
class GradientListener {
 public:
  virtual ~GradientListener() = default;
  /// In this lane's gradient all optimized parameters from `offset` of the flat space on are final. Offsets fall from
  /// call to call. Called on the lane's thread: return soon.
  virtual void final_from(int lane, std::int64_t offset) = 0;
};

}  // namespace distbelief
