#pragma once

#include <map>
#include <span>

#include "params/float_run.h"
#include "params/lbfgs/vector_space.h"
#include "params/parameter_table.h"
#include "params/state_visitor.h"
#include "tensor/buffer.h"

namespace distbelief {

/// The vectors of a VectorSpace where they are in one range of the flat space, beside its values. Only what is
/// optimized and not frozen has elements that count: kGradient is 0 elsewhere, so that nothing made of it changes the
/// rest. One thread.
class RangeVectors {
 public:
  /// Of a vector's name; there are no more vectors than this.
  static constexpr VectorName kMostVectors = 1024;

  /// `values` (of range.size() floats) are borrowed, and are kValues.
  RangeVectors(const ParameterTable& table, Range range, std::span<float> values);

  /// Whether these are orders: names and kinds that exist, nothing that writes to what is constant, and two vectors
  /// where two are needed.
  static bool are_orders(std::span<const VectorOrder> orders);
  /// Carries out what are orders. What the dot products are in this range is added to `dots`, which has one for each.
  void run(std::span<const VectorOrder> orders, std::span<double> dots);
  /// Adds scale * part to kGradient where parameters are optimized and not frozen.
  void add_to_gradient(std::span<const float> part, float scale);
  /// The same of a part that is 0 but for some runs.
  void add_to_gradient(const GradientRuns& part, float scale);

  /// Every vector that was written, with its name, but the values, and, unless `all`, the gradient, which an evaluation
  /// makes anew.
  void visit_state(StateVisitor& visitor, bool all = false);

 private:
  std::span<float> vector(VectorName name);
  void add_to_gradient_at(std::size_t place, std::span<const float> part, float scale);

  const Range range_;
  const std::span<float> values_;
  Buffer trained_;  ///< 1 where parameters are optimized and not frozen, else 0
  std::map<VectorName, Buffer> vectors_;
};

}  // namespace distbelief
