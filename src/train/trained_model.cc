#include "train/trained_model.h"

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "models/model_file.h"
#include "plan/parameter_layout.h"
#include "train/state_arrays.h"

namespace distbelief {
namespace {

constexpr const char* kCardKey = "distbelief.model";

ModelCard card_in(const SafetensorsView& view) {
  const auto card = view.metadata().find(kCardKey);
  if (card == view.metadata().end()) {
    throw FileError(
        fmt::format("{}: safetensors, but not written by distbelief train: no '{}'", view.file(), kCardKey));
  }
  return parse_card(card->second, view.file());
}

}  // namespace

std::string card_text(const ModelCard& card) {
  const SampleSpec& spec = card.model.data;
  return json_text(
      Json{{"model", card.model.source},
           {"model_options", card.model.options},
           {"model_text", card.model_text},
           {"data", card.data},
           {"input",
            {{"shape", spec.input.dims()},
             {"sparse", spec.sparse},
             {"indices", spec.indices},
             {"classes", spec.classes},
             {"targets", spec.targets}}},
           {"normalization", {{"mean", card.normalization.mean}, {"deviation", card.normalization.deviation}}},
           {"class_names", card.class_names}});
}

ModelCard parse_card(const std::string& text, const std::string& file) {
  try {
    const Json root = parse_json(text);
    ModelCard card;
    card.model.source = root.at("model");
    card.model.options = root.at("model_options").get<std::map<std::string, std::string>>();
    card.model_text = root.at("model_text");
    card.data = root.at("data");
    const Json& input = root.at("input");
    card.model.data = {.input = Shape(input.at("shape").get<std::vector<std::int64_t>>()),
                       .sparse = input.at("sparse"),
                       .indices = input.at("indices"),
                       .classes = input.at("classes"),
                       .targets = input.at("targets")};
    card.normalization.mean = root.at("normalization").at("mean").get<std::vector<float>>();
    card.normalization.deviation = root.at("normalization").at("deviation").get<std::vector<float>>();
    card.class_names = root.at("class_names").get<std::vector<std::string>>();
    return card;
  } catch (const JsonError& error) {
    throw FileError(fmt::format("{}: the description of the model is damaged: {}", file, error.what()));
  }
}

Graph graph_of(const ModelCard& card) {
  // The file may be elsewhere by now, or changed: what it was is in the card.
  return card.model_text.empty() ? make_model(card.model)
                                 : parse_model(card.model_text, card.model.source, card.model.data);
}

void write_model(const std::filesystem::path& path, const ModelCard& card, const ParameterTable& table,
                 std::span<const float> values) {
  write_model(path, card, named_arrays(table, values));
}

void write_model(const std::filesystem::path& path, const ModelCard& card, std::span<const FloatArray> arrays) {
  write_safetensors(path, arrays, {{kCardKey, card_text(card)}});
}

std::filesystem::path model_file_of(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) {
    return path;
  }
  const std::filesystem::path file = path / "model.safetensors";
  if (!std::filesystem::exists(file)) {
    throw FileError(fmt::format("{}: no model.safetensors in this folder; it appears when a run ends", path.string()));
  }
  return file;
}

ModelCard read_card(const std::filesystem::path& path) { return card_in(SafetensorsFile(model_file_of(path)).view()); }

TrainedModel read_model(const std::filesystem::path& path) {
  const SafetensorsFile opened(model_file_of(path));
  ModelCard card = card_in(opened.view());
  Graph graph = graph_of(card);
  auto table = std::make_unique<ParameterTable>(layout_parameters(graph));
  Buffer values = float_buffer(table->size());
  read_named_arrays(*table, opened.view(), "", values.as<float>());
  return {std::move(card), std::move(graph), std::move(table), std::move(values)};
}

InitReport init_report(const std::filesystem::path& path, const ParameterTable& table) {
  const SafetensorsFile opened(model_file_of(path));
  InitReport report;
  for (const ParameterEntry& entry : table.entries()) {
    const TensorEntry* tensor = opened.view().find(entry.name);
    (tensor == nullptr || tensor->shape != entry.shape ? report.anew : report.kept).push_back(entry.name);
  }
  if (report.kept.empty()) {
    throw FileError(fmt::format("{}: none of its tensors has the name and shape of a parameter of this model",
                                opened.view().file()));
  }
  return report;
}

InitReport init_from(const std::filesystem::path& path, const ParameterTable& table, std::span<float> values) {
  InitReport report = init_report(path, table);
  const SafetensorsFile opened(model_file_of(path));
  for (const std::string& name : report.kept) {
    const ParameterEntry& entry = table.at(name);
    opened.view().read(*opened.view().find(name), values.subspan(static_cast<std::size_t>(entry.range.begin),
                                                                 static_cast<std::size_t>(entry.range.size())));
  }
  return report;
}

}  // namespace distbelief
