#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace distbelief {

/// One layer, as a table shows it.
struct LayerRow {
  std::string name;
  std::string type;
  std::vector<std::string> inputs;
  Shape output;  ///< of one sample
  std::int64_t parameters = 0;
  std::int64_t flops = 0;  ///< one sample, forward
};

/// A model in numbers.
struct ModelSummary {
  std::string name;
  std::string loss;
  std::vector<LayerRow> rows;        ///< the input first
  std::int64_t parameters = 0;       ///< optimized ones
  std::int64_t statistics = 0;       ///< averaged ones: batch norm's
  std::int64_t flops = 0;            ///< one sample, forward
  std::int64_t parameter_bytes = 0;  ///< values of parameters and statistics, without gradients and optimizer state
  /// What one sample's forward pass leaves for the backward pass: an estimate, since the executor saves more.
  std::int64_t activation_bytes = 0;
};

ModelSummary summarize(const Graph& graph);

/// A table with a line for each layer and a few lines of totals; ends with a newline.
std::string model_text(const ModelSummary& summary);

}  // namespace distbelief
