#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "graph/graph.h"
#include "tensor/batch.h"

namespace distbelief {

// Model files, in YAML. docs/models.md has every layer and its keys; examples/models/ has whole files.
//
//   name: tiny                          # optional: the file's name
//   input: {shape: [1, 28, 28]}         # optional: the data's; also kind (dense, sparse, indices), classes, targets
//   layers:                             # in the order in which they run
//     - conv2d: {name: conv1, filters: 16, kernel: 3, padding: same}
//     - relu                            # its input is the layer before, its name relu1
//     - add: {inputs: [conv1, relu1]}   # or the layers that `inputs` names; `input` is the model's input
//     - flatten
//     - dense: {units: classes}         # as many as the data has
//   loss: softmax_cross_entropy         # optional: this for classes, mean_squared_error for targets

/// Reads and builds a model file for this data; with an empty data.input, for what the file's `input` says. Throws
/// InputError of one line with file, line and key; nothing large is allocated before sizes are checked.
Graph load_model_file(const std::filesystem::path& path, const SampleSpec& data);

/// The same for text that is in memory already; `file` names it in messages, and the model if it has no name.
Graph parse_model(std::string_view text, const std::string& file, const SampleSpec& data);

}  // namespace distbelief
