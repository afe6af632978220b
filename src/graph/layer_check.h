#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/random.h"
#include "graph/layer_run.h"

namespace distbelief {

// For tests only.

/// A layer and what it is tried on.
struct LayerCase {
  std::string name;
  LayerPtr layer;
  std::vector<ValueSpec> inputs;
  double tolerance = 2e-3;  ///< relative to the largest gradient
};

inline ValueSpec dense_value(const Shape& shape) { return {shape, ValueKind::dense}; }

/// Numbers from −2 to 2 in random order and no two closer than 4 / count: small steps change no maximum and no sign.
inline std::vector<float> spread_numbers(std::int64_t count, std::uint64_t stream) {
  const CounterRandom random(3, RandomUse::generate);
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = (static_cast<float>(i) + 0.5F) / static_cast<float>(count) * 4.0F - 2.0F;
  }
  for (std::size_t i = numbers.size(); i > 1; --i) {
    std::swap(numbers[i - 1], numbers[random.below(i, stream, i)]);
  }
  return numbers;
}

inline std::vector<float> normal_numbers(std::int64_t count, std::uint64_t stream) {
  const CounterRandom random(4, RandomUse::generate);
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = random.normal(stream, i);
  }
  return numbers;
}

/// Fills inputs and parameters with fixed random numbers.
inline void fill_at_random(LayerRun& run, std::span<const std::uint64_t> sample_ids) {
  run.step = {.training = true, .seed = 1, .epoch = 2, .sample_ids = sample_ids};
  const CounterRandom random(5, RandomUse::generate);
  for (std::size_t i = 0; i < run.inputs.size(); ++i) {
    const ValueSpec& spec = run.input_specs()[i];
    if (spec.kind == ValueKind::dense) {
      run.inputs[i] = spread_numbers(spec.shape.elements(), i);
    } else if (spec.kind == ValueKind::indices) {
      for (std::int64_t k = 0; k < spec.shape.elements(); ++k) {
        run.indices.push_back(static_cast<std::int32_t>(random.below(5, 1, static_cast<std::uint64_t>(k))));
      }
    } else {
      for (std::int64_t r = 0; r < spec.shape[0]; ++r) {
        for (std::int64_t c = r % 2; c < spec.shape[1]; c += 3) {
          run.sparse.columns.push_back(static_cast<std::int32_t>(c));
          run.sparse.values.push_back(random.normal(2, run.sparse.values.size()));
        }
        run.sparse.offsets.push_back(static_cast<std::int64_t>(run.sparse.columns.size()));
      }
    }
  }
  for (std::size_t i = 0; i < run.parameters.size(); ++i) {
    run.parameters[i] = normal_numbers(run.parameter_specs()[i].shape.elements(), i);
    for (float& value : run.parameters[i]) {
      // Statistics: a variance is positive, and a mean may be.
      value = run.parameter_specs()[i].kind == ParameterKind::averaged ? 0.5F + std::abs(value) : 0.5F * value;
    }
  }
}

/// d(objective)/d(values[i]) by central differences against `gradient`, for up to 150 of the elements.
template <typename Objective>
void expect_derivative(const std::string& what, std::vector<float>& values, const std::vector<float>& gradient,
                       double tolerance, const Objective& objective) {
  double largest = 0.1;
  for (const float g : gradient) {
    ASSERT_TRUE(std::isfinite(g)) << what;
    largest = std::max(largest, std::abs(static_cast<double>(g)));
  }
  const std::size_t stride = std::max<std::size_t>(1, values.size() / 150);
  for (std::size_t i = 0; i < values.size(); i += stride) {
    const float before = values[i];
    const float above = before + 0.004F;
    const float below = before - 0.004F;
    values[i] = above;
    const double high = objective();
    values[i] = below;
    const double low = objective();
    values[i] = before;
    const double measured = (high - low) / (static_cast<double>(above) - below);
    ASSERT_NEAR(gradient[i], measured, tolerance * largest) << what << ", element " << i;
  }
}

/// The objective is a random projection of the output. Compares every gradient with finite differences.
inline void expect_true_gradients(const LayerCase& test, LayerRun::Settings settings) {
  LayerRun run(*test.layer, test.inputs, settings);
  std::vector<std::uint64_t> ids(static_cast<std::size_t>(test.inputs[0].shape[0]));
  std::iota(ids.begin(), ids.end(), 7);
  fill_at_random(run, ids);
  const std::vector<float> projection = normal_numbers(run.output_shape().elements(), 99);
  const auto objective = [&] {
    run.forward();
    double sum = 0;
    for (std::size_t i = 0; i < run.output.size(); ++i) {
      sum += static_cast<double>(run.output[i]) * projection[i];
    }
    return sum;
  };
  run.forward();
  run.backward(projection);
  const auto input_gradients = run.input_gradients;  // forward() and backward() write over them
  const auto parameter_gradients = run.parameter_gradients;
  for (std::size_t i = 0; i < run.inputs.size() && settings.input_gradients; ++i) {
    if (test.inputs[i].kind == ValueKind::dense) {
      expect_derivative(test.name + ": input " + std::to_string(i), run.inputs[i], input_gradients[i], test.tolerance,
                        objective);
    }
  }
  for (std::size_t i = 0; i < run.parameters.size(); ++i) {
    const ParameterSpec& spec = run.parameter_specs()[i];
    if (spec.kind == ParameterKind::optimized) {
      expect_derivative(test.name + ": " + spec.name, run.parameters[i], parameter_gradients[i], test.tolerance,
                        objective);
    }
  }
}

}  // namespace distbelief
