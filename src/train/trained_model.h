#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "data/dataset.h"
#include "graph/graph.h"
#include "models/zoo.h"
#include "params/parameter_table.h"
#include "tensor/buffer.h"

namespace distbelief {

/// What a model needs to be used on its own, besides its numbers. Kept in the metadata of model.safetensors.
struct ModelCard {
  ModelRequest model;      ///< `source` is a name of the zoo, or the name of a model file
  std::string model_text;  ///< the model file itself, when it was one
  Normalization normalization;
  std::vector<std::string> class_names;
  std::string data;  ///< what it was trained on, as --data said it
};

std::string card_text(const ModelCard& card);
/// Throws FileError naming `file` and the key.
ModelCard parse_card(const std::string& text, const std::string& file);

/// The model's graph. Throws InputError.
Graph graph_of(const ModelCard& card);

/// A model read from disk.
struct TrainedModel {
  ModelCard card;
  Graph graph;
  std::unique_ptr<ParameterTable> table;  ///< on the heap: replicas keep a reference
  Buffer values;
};

void write_model(const std::filesystem::path& path, const ModelCard& card, const ParameterTable& table,
                 std::span<const float> values);
void write_model(const std::filesystem::path& path, const ModelCard& card, std::span<const FloatArray> arrays);
/// From model.safetensors or from a run's folder. Throws FileError.
TrainedModel read_model(const std::filesystem::path& path);
/// The description alone, without reading the numbers. Throws FileError.
ModelCard read_card(const std::filesystem::path& path);
/// The file inside, when `path` is a run's folder.
std::filesystem::path model_file_of(const std::filesystem::path& path);

/// What --init did, by parameter.
struct InitReport {
  std::vector<std::string> kept;
  std::vector<std::string> anew;  ///< not in the file, or of another shape
};
/// What it would do. Throws as init_from().
InitReport init_report(const std::filesystem::path& path, const ParameterTable& table);
/// Overwrites those values that the file has under the same name and shape. Throws FileError, also when there is none.
InitReport init_from(const std::filesystem::path& path, const ParameterTable& table, std::span<float> values);

}  // namespace distbelief
