#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "models/model_options.h"
#include "tensor/batch.h"

namespace distbelief {

/// Which model, for which data.
struct ModelRequest {
  std::string source;    ///< a name of known_models(), or a model file (see models/model_file.h)
  SampleSpec data = {};  ///< input shape and classes; with an empty input: those the model was published for
  std::map<std::string, std::string> options = {};
};

/// A model of the zoo.
struct ModelInfo {
  std::string name;
  std::string description;  ///< one line
  SampleSpec default_data;
  std::int64_t parameters;  ///< optimized ones, for the default data and options
  std::vector<ModelOption> options;
};

/// Builds the model for the data's input shape and number of classes. Throws InputError: an unknown name (with the
/// nearest one), an unknown or unfit option, data that the model cannot take (with what it needs), a bad model file.
Graph make_model(const ModelRequest& request);

/// Whether a model's source means a file, by its look: it has a '/' or ends in .yaml or .yml.
bool is_model_file(const std::string& source);

/// In the order in which people should meet them.
std::vector<ModelInfo> known_models();

}  // namespace distbelief
