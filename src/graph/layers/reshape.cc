#include "graph/layers/reshape.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace distbelief {
namespace {

class ViewKernel : public Kernel {
 public:
  explicit ViewKernel(const Shape& shape)
      : Kernel(plain_value(shape), {.backward_reads_inputs = false, .is_view = true}) {}
  void forward(const StepContext& /*step*/) override {}
  void backward(const StepContext& /*step*/) override {}
};

}  // namespace

ValueSpec Reshape::output(ValueSpecs inputs) const {
  expect_dense_inputs(*this, inputs, 1);
  const Shape& from = inputs[0].shape;
  const std::int64_t elements = from.sample().elements();
  if (sample_.empty()) {
    return {{from[0], elements}, ValueKind::dense};
  }
  std::int64_t known = 1;
  int open = 0;
  for (const std::int64_t dim : sample_) {
    open += dim == -1 ? 1 : 0;
    known *= dim == -1 ? 1 : dim;
  }
  if (open > 1 || known < 1 || (open == 0 && known != elements) || elements % std::max<std::int64_t>(1, known) != 0) {
    throw ShapeError(fmt::format("reshape: {} does not hold the {} elements of {}", fmt::join(sample_, "x"), elements,
                                 from.sample().text()));
  }
  std::vector<std::int64_t> dims = {from[0]};
  for (const std::int64_t dim : sample_) {
    dims.push_back(dim == -1 ? elements / known : dim);
  }
  return {Shape(std::move(dims)), ValueKind::dense};
}

std::vector<Cut> Reshape::cuts(ValueSpecs inputs) const {
  // Channels are outermost, so that some of them are a run of features.
  return sample_.empty() && inputs[0].shape.rank() > 1 ? std::vector{Cut::channels} : std::vector<Cut>{};
}

std::unique_ptr<Kernel> Reshape::compile(const Engine& /*engine*/, ValueLayouts inputs, Purpose /*purpose*/) const {
  const ValueSpec& input = inputs[0].spec;
  return std::make_unique<ViewKernel>(output(std::span(&input, 1)).shape);
}

}  // namespace distbelief
