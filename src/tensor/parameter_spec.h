#pragma once

#include <cstdint>
#include <string>

#include "tensor/shape.h"
#include "tensor/slice.h"

namespace distbelief {

/// How the values of a parameter begin.
struct Initializer {
  enum class Kind { zeros, ones, uniform, normal } kind = Kind::zeros;
  float scale = 0;  ///< uniform: in [-scale, scale); normal: standard deviation

  static Initializer zeros() { return {}; }
  static Initializer ones() { return {Kind::ones, 0}; }
  static Initializer uniform(float bound) { return {Kind::uniform, bound}; }
  static Initializer normal(float deviation) { return {Kind::normal, deviation}; }
  /// He et al. 2015, for layers that a ReLU follows; Glorot and Bengio 2010 for others.
  static Initializer he(std::int64_t fan_in);
  static Initializer glorot(std::int64_t fan_in, std::int64_t fan_out);
  /// For a network's last layer: its first predictions are nearly even, and the first steps cannot tear it apart.
  static Initializer small(std::int64_t fan_in);
};

/// Optimized parameters follow an update rule; averaged ones (batch norm's statistics) are pulled towards what each
/// step observed, and no rule, decay or clipping touches them.
enum class ParameterKind { optimized, averaged };

/// One parameter as its layer describes it.
struct ParameterSpec {
  std::string name;  ///< within the layer: "weight"
  Shape shape;
  Initializer init = {};
  ParameterKind kind = ParameterKind::optimized;
  bool decays = true;         ///< weight decay applies (not to biases and scales)
  float average_rate = 0.1F;  ///< averaged: value += rate × (observed − value)
  /// Above 0: the parameter is rows of so many floats, of which a batch reads few (Kernel::rows_read()).
  std::int64_t row_floats = 0;
  /// Where a process has a part of a parameter: along which axis, and which part. -1: all of it.
  int part_axis = -1;
  Slice part = {};

  /// Of the parameter that this is a part of, or is.
  Shape whole_shape() const;
};

}  // namespace distbelief
