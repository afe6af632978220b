#include "tensor/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "base/error.h"

namespace distbelief {

std::int64_t Shape::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t dim : dims_) {
    if (__builtin_mul_overflow(product, dim, &product)) {
      throw ShapeError(fmt::format("the shape {} has more elements than can be counted", text()));
    }
  }
  return product;
}

Shape Shape::with_batch(std::int64_t batch) const {
  check(!dims_.empty(), "a shape without dimensions has no batch");
  Shape result = *this;
  result.dims_[0] = batch;
  return result;
}

Shape Shape::sample() const {
  check(!dims_.empty(), "a shape without dimensions has no batch");
  return Shape(std::vector<std::int64_t>(dims_.begin() + 1, dims_.end()));
}

std::string Shape::text() const { return dims_.empty() ? "scalar" : fmt::format("{}", fmt::join(dims_, "x")); }

}  // namespace distbelief
