#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace distbelief {

/// Names a vector as long as the parameters. The first are what training works with; the rest are for who orders.
using VectorName = std::uint32_t;
inline constexpr VectorName kValues = 0;    ///< the parameters
inline constexpr VectorName kGradient = 1;  ///< of the objective; mean over the samples of an evaluation
inline constexpr VectorName kDecaying = 2;  ///< 1 where weight decay applies, else 0; constant
inline constexpr VectorName kFirstFree = 3;

/// One operation on whole vectors.
struct VectorOrder {
  enum class Kind : std::uint32_t {
    copy,      ///< to = from
    scale,     ///< to = factor * to; a factor of 0 clears what is there, whatever it is
    add,       ///< to = to + from
    multiply,  ///< to = to * from, element by element
    axpy,      ///< to = to + factor * from
    dot,       ///< tells the dot product of both, summed in double; changes nothing
  };
  Kind kind = Kind::copy;
  VectorName to = 0;
  VectorName from = 0;
  std::uint32_t unused = 0;  ///< so that all bytes are named: orders travel as they are
  double factor = 1;
};

inline VectorOrder copy_order(VectorName from, VectorName to) {
  return {.kind = VectorOrder::Kind::copy, .to = to, .from = from};
}
inline VectorOrder scale_order(VectorName vector, double factor) {
  return {.kind = VectorOrder::Kind::scale, .to = vector, .from = vector, .factor = factor};
}
inline VectorOrder multiply_order(VectorName from, VectorName to) {
  return {.kind = VectorOrder::Kind::multiply, .to = to, .from = from};
}
inline VectorOrder axpy_order(double factor, VectorName from, VectorName to) {
  return {.kind = VectorOrder::Kind::axpy, .to = to, .from = from, .factor = factor};
}
inline VectorOrder dot_order(VectorName one, VectorName other) {
  return {.kind = VectorOrder::Kind::dot, .to = one, .from = other};
}

/// How many dot products these orders tell.
inline std::size_t dots_of(std::span<const VectorOrder> orders) {
  return static_cast<std::size_t>(std::ranges::count(orders, VectorOrder::Kind::dot, &VectorOrder::kind));
}

/// Vectors that are kept wherever the parameters are. Who orders operations never sees an element of them: orders go
/// one way and dot products the other.
class VectorSpace {
 public:
  virtual ~VectorSpace() = default;
  /// Carries the orders out one after the other; the dot products of those that ask for one replace what is in `dots`.
  /// False: some of the elements are lost, and nothing can go on. A vector that was never written holds zeros.
  [[nodiscard]] virtual bool run(std::span<const VectorOrder> orders, std::vector<double>& dots) = 0;
};

}  // namespace distbelief
