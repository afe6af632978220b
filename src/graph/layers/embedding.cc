#include "graph/layers/embedding.h"

#include <algorithm>

#include "base/error.h"
#include "base/parallel.h"
#include "tensor/vector_ops.h"

namespace distbelief {
namespace {

std::int64_t own_rows(const EmbeddingOptions& options) {
  return options.rows.whole > 0 ? options.rows.size() : options.vocabulary;
}

class EmbeddingKernel : public Kernel {
 public:
  EmbeddingKernel(const Shape& output, const EmbeddingOptions& options)
      : Kernel(plain_value(output)), count_(output.elements() / options.dimension), options_(options) {}

  void forward(const StepContext& /*step*/) override {
    const std::int32_t* indices = rows_read().data();
    const std::int64_t width = options_.dimension;
    parallel_for(count_, std::max<std::int64_t>(1, 16384 / width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t row = indices[i] - options_.rows.begin;
        if (row >= 0 && row < own_rows(options_)) {
          std::copy_n(memory_.parameters[0] + row * width, width, memory_.output + i * width);
        } else {
          std::fill_n(memory_.output + i * width, width, 0.0F);
        }
      }
    });
  }

  void backward(const StepContext& /*step*/) override {
    // Each thread owns a range of the vocabulary and adds in order: the same sums for any number of threads.
    const std::int64_t width = options_.dimension;
    const std::int32_t* indices = input();
    float* table = memory_.parameter_gradients[0];
    parallel_for(own_rows(options_), std::max<std::int64_t>(1, 16384 / width),
                 [&](std::int64_t begin, std::int64_t end) {
                   if (!memory_.touched_rows_only) {
                     std::fill(table + begin * width, table + end * width, 0.0F);
                   }
                   for (std::int64_t i = 0; i < count_; ++i) {
                     const std::int64_t row = indices[i] - options_.rows.begin;
                     if (row >= begin && row < end) {
                       axpy(1.0F, memory_.output_gradient + i * width, table + row * width, width);
                     }
                   }
                 });
  }

  std::span<const std::int32_t> rows_read() const override {
    const std::span<const std::int32_t> indices(input(), static_cast<std::size_t>(count_));
    for (const std::int32_t index : indices) {
      if (index < 0 || index >= options_.vocabulary) {
        throw InputError(fmt::format("embedding: index {} is not in its vocabulary of {} (0 to {})", index,
                                     options_.vocabulary, options_.vocabulary - 1));
      }
    }
    return indices;
  }

 private:
  const std::int32_t* input() const { return static_cast<const std::int32_t*>(memory_.inputs[0]); }

  const std::int64_t count_;  ///< of indices
  const EmbeddingOptions options_;
};

}  // namespace

ValueSpec Embedding::output(ValueSpecs inputs) const {
  if (inputs.size() != 1 || inputs[0].kind != ValueKind::indices || inputs[0].shape.rank() != 2) {
    throw ShapeError(fmt::format("embedding takes one input of integers (batch x n), got {}",
                                 inputs.empty()                         ? "none"
                                 : inputs[0].kind == ValueKind::indices ? inputs[0].shape.text()
                                                                        : "floats of " + inputs[0].shape.text()));
  }
  if (options_.vocabulary < 1 || options_.dimension < 1) {
    throw InputError(fmt::format("embedding needs vocabulary and dimension of 1 or more, got {} and {}",
                                 options_.vocabulary, options_.dimension));
  }
  return {{inputs[0].shape[0], inputs[0].shape[1], options_.dimension}, ValueKind::dense};
}

std::vector<ParameterSpec> Embedding::parameters(ValueSpecs /*inputs*/) const {
  return {{.name = "weight",
           .shape = {own_rows(options_), options_.dimension},
           .init = Initializer::normal(0.05F),
           .row_floats = options_.dimension}};
}

LayerPart Embedding::part(Cut /*cut*/, ValueSpecs /*inputs*/, const Slice& slice) const {
  EmbeddingOptions options = options_;
  options.rows = slice;
  return {.layer = std::make_shared<Embedding>(options),
          .parameters = {{.name = "weight", .axis = 0, .slice = slice}}};
}

std::unique_ptr<Kernel> Embedding::compile(const Engine& /*engine*/, ValueLayouts inputs, Purpose /*purpose*/) const {
  const ValueSpec& input = inputs[0].spec;
  return std::make_unique<EmbeddingKernel>(output(std::span(&input, 1)).shape, options_);
}

}  // namespace distbelief
