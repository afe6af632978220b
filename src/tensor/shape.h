#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace distbelief {

/// Sizes of a tensor's dimensions, outermost first. For values of a graph, dimension 0 is the batch.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) : dims_(dims) {}
  explicit Shape(std::vector<std::int64_t> dims) : dims_(std::move(dims)) {}

  int rank() const { return static_cast<int>(dims_.size()); }
  std::int64_t operator[](int dimension) const { return dims_.at(static_cast<std::size_t>(dimension)); }
  const std::vector<std::int64_t>& dims() const { return dims_; }
  /// The product of all dimensions; 1 for rank 0. Throws ShapeError when 64 bits do not hold it.
  std::int64_t elements() const;
  /// The same shape with another size in dimension 0.
  Shape with_batch(std::int64_t batch) const;
  /// Without dimension 0.
  Shape sample() const;
  /// As people write it: "128x1x28x28"; "scalar" for rank 0.
  std::string text() const;

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::vector<std::int64_t> dims_;
};

}  // namespace distbelief
