#include "graph/layers/factorization.h"

#include <algorithm>

#include "base/error.h"
#include "base/multiversion.h"
#include "base/parallel.h"
#include "tensor/vector_ops.h"

namespace distbelief {
namespace {

enum MachineParameter : std::size_t { kBias, kWeight, kFactors };

/// The gradient of one column's factors; `slope` is x times the gradient of the score.
DISTBELIEF_MULTIVERSION void add_factor_gradient(float slope, float x, const float* __restrict sums,
                                                 const float* __restrict factors, float* __restrict out,
                                                 std::int64_t count) {
  for (std::int64_t f = 0; f < count; ++f) {
    out[f] += slope * (sums[f] - factors[f] * x);
  }
}

/// A batch of dense rows, visited like sparse ones.
struct DenseRows {
  const float* values;
  std::int64_t columns;

  template <typename Visit>
  void for_each(std::int64_t row, std::int64_t first, std::int64_t last, const Visit& visit) const {
    for (std::int64_t c = first; c < last; ++c) {
      if (const float value = values[row * columns + c]; value != 0) {
        visit(c, value);
      }
    }
  }
};

/// Entries of a sparse batch whose columns are in [first, last).
struct SparseEntries {
  const SparseView& view;

  template <typename Visit>
  void for_each(std::int64_t row, std::int64_t first, std::int64_t last, const Visit& visit) const {
    const SparseRows& rows = *view.rows;
    const auto begin = rows.columns.begin() + rows.offsets[static_cast<std::size_t>(view.first + row)];
    const auto end = rows.columns.begin() + rows.offsets[static_cast<std::size_t>(view.first + row + 1)];
    for (auto it = std::lower_bound(begin, end, first); it != end && *it < last; ++it) {
      visit(std::int64_t{*it}, rows.values[static_cast<std::size_t>(it - rows.columns.begin())]);
    }
  }
};

class FactorizationKernel : public Kernel {
 public:
  FactorizationKernel(const ValueLayout& input, std::int64_t factors)
      : Kernel(plain_value({input.spec.shape[0], 1})),
        sparse_(input.spec.kind == ValueKind::sparse),
        rows_(input.spec.shape[0]),
        columns_(input.spec.shape[1]),
        factors_(factors) {
    traits_.workspace_bytes = static_cast<std::size_t>(rows_ * factors) * sizeof(float);
  }

  void forward(const StepContext& /*step*/) override {
    with_entries([&](const auto& entries) {
      parallel_for(rows_, 16, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
          memory_.output[r] = score(entries, r);
        }
      });
    });
  }

  void backward(const StepContext& /*step*/) override {
    float bias = 0;
    for (std::int64_t r = 0; r < rows_; ++r) {
      bias += memory_.output_gradient[r];
    }
    memory_.parameter_gradients[kBias][0] = bias;
    with_entries([&](const auto& entries) {
      // Each thread owns a range of columns and adds in order: the same sums for any number of threads.
      parallel_for(columns_, std::max<std::int64_t>(1, 16384 / factors_),
                   [&](std::int64_t begin, std::int64_t end) { add_column_gradients(entries, begin, end); });
    });
    if (!sparse_ && memory_.input_gradients[0] != nullptr) {
      parallel_for(rows_, 1, [&](std::int64_t begin, std::int64_t end) { write_input_gradients(begin, end); });
    }
  }

  std::span<const std::int32_t> rows_read() const override {
    return sparse_ ? static_cast<const SparseView*>(memory_.inputs[0])->columns() : std::span<const std::int32_t>();
  }

 private:
  template <typename Work>
  void with_entries(const Work& work) const {
    if (sparse_) {
      work(SparseEntries{*static_cast<const SparseView*>(memory_.inputs[0])});
    } else {
      work(DenseRows{static_cast<const float*>(memory_.inputs[0]), columns_});
    }
  }

  template <typename Entries>
  float score(const Entries& entries, std::int64_t row) const {
    float* sum = sums(row);
    std::fill(sum, sum + factors_, 0.0F);
    float linear = memory_.parameters[kBias][0];
    float squares = 0;
    entries.for_each(row, 0, columns_, [&](std::int64_t column, float x) {
      const float* own = factors_of(column);
      linear += x * memory_.parameters[kWeight][column];
      squares += x * x * dot(own, own, factors_);
      axpy(x, own, sum, factors_);
    });
    return linear + 0.5F * (dot(sum, sum, factors_) - squares);
  }

  template <typename Entries>
  void add_column_gradients(const Entries& entries, std::int64_t begin, std::int64_t end) const {
    float* weight = memory_.parameter_gradients[kWeight];
    float* factors = memory_.parameter_gradients[kFactors];
    if (!memory_.touched_rows_only || !sparse_) {
      std::fill(weight + begin, weight + end, 0.0F);
      std::fill(factors + begin * factors_, factors + end * factors_, 0.0F);
    }
    for (std::int64_t r = 0; r < rows_; ++r) {
      const float gradient = memory_.output_gradient[r];
      entries.for_each(r, begin, end, [&](std::int64_t column, float x) {
        weight[column] += gradient * x;
        add_factor_gradient(gradient * x, x, sums(r), factors_of(column), factors + column * factors_, factors_);
      });
    }
  }

  void write_input_gradients(std::int64_t begin, std::int64_t end) const {
    const auto* input = static_cast<const float*>(memory_.inputs[0]);
    for (std::int64_t r = begin; r < end; ++r) {
      for (std::int64_t c = 0; c < columns_; ++c) {
        const float* own = factors_of(c);
        const float pairs = dot(own, sums(r), factors_) - input[r * columns_ + c] * dot(own, own, factors_);
        memory_.input_gradients[0][r * columns_ + c] =
            memory_.output_gradient[r] * (memory_.parameters[kWeight][c] + pairs);
      }
    }
  }

  /// Σᵢ v_if xᵢ for each factor f: kept from forward to backward.
  float* sums(std::int64_t row) const { return reinterpret_cast<float*>(memory_.workspace) + row * factors_; }
  const float* factors_of(std::int64_t column) const { return memory_.parameters[kFactors] + column * factors_; }

  const bool sparse_;
  const std::int64_t rows_;
  const std::int64_t columns_;
  const std::int64_t factors_;
};

}  // namespace

ValueSpec FactorizationMachine::output(ValueSpecs inputs) const {
  if (inputs.size() != 1 || inputs[0].kind == ValueKind::indices) {
    expect_dense_inputs(*this, inputs, 1);
  }
  if (inputs[0].shape.rank() != 2) {
    throw ShapeError(fmt::format("factorization takes rows (batch x columns), got {}", inputs[0].shape.text()));
  }
  if (factors_ < 1) {
    throw InputError(fmt::format("factorization needs factors of 1 or more, got {}", factors_));
  }
  return {{inputs[0].shape[0], 1}, ValueKind::dense};
}

std::vector<ParameterSpec> FactorizationMachine::parameters(ValueSpecs inputs) const {
  const std::int64_t columns = inputs[0].shape[1];
  const bool sparse = inputs[0].kind == ValueKind::sparse;
  return {{.name = "bias", .shape = {1}, .init = Initializer::zeros(), .decays = false},
          {.name = "weight", .shape = {columns}, .init = Initializer::zeros(), .row_floats = sparse ? 1 : 0},
          {.name = "factors",
           .shape = {columns, factors_},
           .init = Initializer::normal(0.01F),
           .row_floats = sparse ? factors_ : 0}};
}

std::int64_t FactorizationMachine::flops(ValueSpecs inputs) const {
  return inputs[0].shape.elements() * (4 * factors_ + 2);
}

std::unique_ptr<Kernel> FactorizationMachine::compile(const Engine& /*engine*/, ValueLayouts inputs,
                                                      Purpose /*purpose*/) const {
  return std::make_unique<FactorizationKernel>(inputs[0], factors_);
}

}  // namespace distbelief
