#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "tensor/shape.h"

namespace distbelief {

/// What the samples of a batch should have given: classes or floats, as the data set has them.
struct Targets {
  std::span<const std::int32_t> classes;
  std::span<const float> values;
};

/// Sums over a batch; the caller divides once, by the global count.
struct LossSums {
  double loss = 0;
  std::int64_t correct = 0;  ///< rows whose class was right; 0 for regression
  std::int64_t rows = 0;

  LossSums& operator+=(const LossSums& other) {
    loss += other.loss;
    correct += other.correct;
    rows += other.rows;
    return *this;
  }
};

/// How far predictions are from targets. Immutable, thread-safe.
class Loss {
 public:
  virtual ~Loss() = default;
  virtual std::string_view type() const = 0;
  /// True when targets are classes, false when they are floats.
  virtual bool wants_classes() const = 0;
  /// Throws ShapeError when predictions of this shape (batch first) cannot be compared with such targets.
  virtual void check_fit(const Shape& prediction, std::int64_t classes, std::int64_t targets) const = 0;
  /// `prediction` is rows × columns, row-major. Writes d(sum of losses)/d(prediction) to `gradient` unless it is null.
  virtual LossSums evaluate(const float* prediction, std::int64_t rows, std::int64_t columns, const Targets& targets,
                            float* gradient) const = 0;
  /// Turns a row of predictions into probabilities (or leaves it), for predict.
  virtual void to_probabilities(std::span<float> row) const = 0;
};
using LossPtr = std::shared_ptr<const Loss>;  // shared by a graph and its fused copy

}  // namespace distbelief
