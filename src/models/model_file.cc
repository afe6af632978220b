#include "models/model_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <type_traits>

#include "base/error.h"
#include "base/file.h"
#include "base/nearest_name.h"
#include "graph/losses/loss_factory.h"
#include "models/layer_factory.h"
#include "models/network.h"
#include "models/yaml_text.h"

namespace distbelief {
namespace {

constexpr std::size_t kMaxLayers = 10000;
constexpr std::size_t kMaxNameLength = 100;
constexpr std::size_t kMaxInputRank = 5;

/// A layer before it is built.
struct LayerEntry {
  int line = 0;
  std::string type;
  std::string name;  ///< empty: not given
  std::vector<std::string> inputs;
  bool has_inputs = false;
  std::map<std::string, AttributeValue> attributes;
};

class ModelReader {
 public:
  ModelReader(std::string file, const SampleSpec& data) : file_(std::move(file)), data_(data) {}

  Graph read(std::string_view text) {
    const YAML::Node root = load_yaml(text, file_);
    const auto keys = entries(root, "a model file", "keys (name, input, layers, loss)");
    expect_known(root, {"name", "input", "layers", "loss"}, "a model file");
    if (!keys.contains("layers")) {
      fail(root, "a model file needs the key 'layers': a list of layers");
    }
    std::string name = std::filesystem::path(file_).stem().string();
    if (const auto given = keys.find("name"); given != keys.end()) {
      name = read_name(given->second, "key 'name'");
    }
    if (const auto input = keys.find("input"); input != keys.end()) {
      read_input(input->second);
    } else if (data_.input.rank() == 0) {
      throw FileError(
          fmt::format("{}: no data is given and the file has no key 'input', such as input: {{shape: [1, 28, "
                      "28], classes: 10}}",
                      file_));
    }
    std::vector<LayerEntry> layers = read_layers(keys.at("layers"));
    name_the_nameless(layers);
    Network network = in_place(0, [&] { return Network(name, data_); });
    std::map<std::string, NodeId> places = {{"input", network.last()}};
    for (LayerEntry& layer : layers) {
      places[layer.name] = add(network, layer, places);
    }
    const auto loss = keys.find("loss");
    return in_place(loss == keys.end() ? 0 : yaml_line(loss->second), [&] {
      return std::move(network).finish(
          make_loss(loss == keys.end() ? usual_loss() : scalar(loss->second, "key 'loss'")));
    });
  }

 private:
  using Entries = std::map<std::string, YAML::Node>;

  [[noreturn]] void fail(const YAML::Node& node, const std::string& message) const {
    throw FileError(fmt::format("{}: {}", file_place(file_, yaml_line(node)), message));
  }

  /// Runs `action`; what it throws gets the place in the file before it.
  template <typename Action>
  std::invoke_result_t<Action> in_place(int line_number, const Action& action) const {
    try {
      return action();
    } catch (const FileError&) {
      throw;
    } catch (const InputError& error) {
      throw InputError(fmt::format("{}: {}", file_place(file_, line_number), one_line(error.what())));
    }
  }

  /// The keys of a map; refuses anything else, and a key that comes twice.
  Entries entries(const YAML::Node& node, const std::string& what, const std::string& expected) const {
    if (!node.IsMap()) {
      fail(node, fmt::format("{}: expected {}", what, expected));
    }
    Entries result;
    for (const auto& pair : node) {
      const std::string key = scalar(pair.first, fmt::format("a key of {}", what));
      if (!result.emplace(key, pair.second).second) {
        fail(pair.first, fmt::format("{} has the key {} twice", what, quoted(key)));
      }
    }
    return result;
  }

  /// Of a map that entries() took.
  void expect_known(const YAML::Node& map, const std::vector<std::string_view>& known, const std::string& what) const {
    for (const auto& pair : map) {
      const std::string& key = pair.first.Scalar();
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        fail(pair.first, fmt::format("{} has no key {}, only {}{}", what, quoted(key), fmt::join(known, ", "),
                                     did_you_mean(key.substr(0, kMaxNameLength), known)));
      }
    }
  }

  /// Of a key that the map has; its value may begin further below.
  static int key_line(const YAML::Node& map, const std::string& key) {
    const auto found =
        std::find_if(map.begin(), map.end(), [&](const auto& pair) { return pair.first.Scalar() == key; });
    return found == map.end() ? yaml_line(map) : yaml_line(found->first);
  }

  std::string scalar(const YAML::Node& node, const std::string& what) const {
    if (!node.IsScalar()) {
      fail(node, fmt::format("{}: expected one word", what));
    }
    return node.Scalar();
  }

  /// Names become names of parameters, in tables and in files.
  std::string read_name(const YAML::Node& node, const std::string& what) const {
    const std::string name = scalar(node, what);
    const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
             c == '.';
    });
    if (name.empty() || name.size() > kMaxNameLength || !plain) {
      fail(node, fmt::format("{}: expected 1 to {} letters, digits and _ - . signs, got {}", what, kMaxNameLength,
                             quoted(name)));
    }
    return name;
  }

  AttributeValue read_value(const YAML::Node& node, const std::string& what) const {
    AttributeValue value{.words = {}, .is_list = node.IsSequence(), .line = yaml_line(node)};
    if (node.IsSequence()) {
      for (const YAML::Node& item : node) {
        value.words.push_back(scalar(item, what));
      }
    } else {
      value.words.push_back(node.IsNull() ? "" : scalar(node, what));
    }
    return value;
  }

  /// Compares what the file says with the data; without data, what it says holds.
  void read_input(const YAML::Node& node) {
    const auto keys = entries(node, "key 'input'", "keys in braces, such as {shape: [1, 28, 28], classes: 10}");
    expect_known(node, {"shape", "kind", "classes", "targets"}, "key 'input'");
    std::map<std::string, AttributeValue> values;
    for (const auto& [key, value] : keys) {
      values[key] = read_value(value, fmt::format("key '{}' of the input", key));
    }
    LayerAttributes attributes(file_, yaml_line(node), "input", std::move(values), {});
    const bool no_data = data_.input.rank() == 0;
    const std::string data_kind = data_.sparse ? "sparse" : data_.indices ? "indices" : "dense";
    const std::string kind = attributes.word("kind", {"dense", "sparse", "indices"}, no_data ? "dense" : data_kind);
    const std::int64_t classes = attributes.integer("classes", 1, no_data ? 0 : data_.classes);
    const std::int64_t targets = attributes.integer("targets", 1, no_data ? 0 : data_.targets);
    if (no_data || attributes.has("shape")) {
      const Shape shape(attributes.integers("shape", 1, kMaxInputRank));
      if (kind == "sparse" && shape.rank() != 1) {
        attributes.refuse("shape", "one number, the columns, since the kind is sparse");
      }
      if (no_data) {
        data_ = {.input = shape,
                 .sparse = kind == "sparse",
                 .indices = kind == "indices",
                 .classes = classes,
                 .targets = targets};
        return;
      }
      const Shape data_shape = data_.sparse ? Shape{data_.input.elements()} : data_.input;
      if (shape != data_shape) {
        attributes.refuse("shape", fmt::format("the shape of the data, {}", data_shape.text()));
      }
    }
    if (kind != data_kind) {
      attributes.refuse("kind", fmt::format("the kind of the data, {}", data_kind));
    }
    if (classes != data_.classes) {
      attributes.refuse("classes", fmt::format("the classes of the data, {}", data_.classes));
    }
    if (targets != data_.targets) {
      attributes.refuse("targets", fmt::format("the targets of the data, {}", data_.targets));
    }
  }

  std::vector<LayerEntry> read_layers(const YAML::Node& node) const {
    if (!node.IsSequence() || node.size() == 0) {
      fail(node, "key 'layers': expected a list of layers, such as - dense: {units: 10}");
    }
    if (node.size() > kMaxLayers) {
      fail(node, fmt::format("key 'layers': {} layers are too many (at most {})", node.size(), kMaxLayers));
    }
    std::vector<LayerEntry> layers;
    for (const YAML::Node& item : node) {
      layers.push_back(read_layer(item));
    }
    return layers;
  }

  LayerEntry read_layer(const YAML::Node& node) const {
    LayerEntry layer;
    layer.line = yaml_line(node);
    if (node.IsScalar()) {
      layer.type = node.Scalar();
      expect_type(node, layer.type);
      return layer;
    }
    const auto keys = entries(node, "a layer", "a type, such as relu, or a type with keys, such as dense: {units: 10}");
    if (keys.size() != 1) {
      fail(node, fmt::format("a layer: expected one type with its keys in braces or indented below it, such as dense: "
                             "{{units: 10}}, got {} keys side by side",
                             keys.size()));
    }
    const auto& [type, body] = *keys.begin();
    expect_type(node, type);
    layer.type = type;
    if (!body.IsNull()) {
      read_body(body, layer);
    }
    return layer;
  }

  void expect_type(const YAML::Node& node, const std::string& type) const {
    const std::vector<std::string_view> types = layer_types();
    if (std::find(types.begin(), types.end(), type) == types.end()) {
      fail(node, fmt::format("there is no layer {} (known: {}){}", quoted(type), fmt::join(types, ", "),
                             did_you_mean(type.substr(0, kMaxNameLength), types)));
    }
  }

  void read_body(const YAML::Node& body, LayerEntry& layer) const {
    const std::string what = fmt::format("layer '{}'", layer.type);
    for (const auto& [key, value] : entries(body, what, "keys in braces, such as {units: 10}")) {
      const std::string where = fmt::format("key {} of {}", quoted(key), what);
      if (key == "name") {
        layer.name = read_name(value, where);
        if (layer.name == "input") {
          fail(value, fmt::format("{}: 'input' is the model's input; choose another name", where));
        }
      } else if (key == "inputs") {
        layer.has_inputs = true;
        layer.inputs = read_value(value, where).words;
      } else {
        layer.attributes[key] = read_value(value, where);
        layer.attributes[key].line = key_line(body, key);
      }
    }
  }

  /// relu1, relu2, ...: the type with a number that no other layer's name has.
  void name_the_nameless(std::vector<LayerEntry>& layers) const {
    std::set<std::string> taken;
    for (const LayerEntry& layer : layers) {
      if (!layer.name.empty() && !taken.insert(layer.name).second) {
        throw FileError(fmt::format("{}: another layer is called '{}' already; names must differ",
                                    file_place(file_, layer.line), layer.name));
      }
    }
    std::map<std::string, int> numbers;
    for (LayerEntry& layer : layers) {
      while (layer.name.empty()) {
        std::string name = fmt::format("{}{}", layer.type, ++numbers[layer.type]);
        if (taken.insert(name).second) {
          layer.name = std::move(name);
        }
      }
    }
  }

  NodeId add(Network& network, LayerEntry& layer, const std::map<std::string, NodeId>& places) const {
    std::vector<NodeId> inputs;
    if (!layer.has_inputs) {
      if (takes_several_inputs(layer.type)) {
        LayerAttributes(file_, layer.line, layer.name, layer.attributes, data_)
            .require("inputs", "the names of two or more layers");
      }
      inputs = {network.last()};
    }
    for (const std::string& input : layer.inputs) {
      const auto found = places.find(input);
      if (found == places.end()) {
        std::vector<std::string_view> names;
        for (const auto& [name, id] : places) {
          names.push_back(name);
        }
        throw FileError(
            fmt::format("{}: key 'inputs' of layer '{}': expected the name of a layer before it or 'input', "
                        "got {}{}",
                        file_place(file_, layer.line), layer.name, quoted(input),
                        did_you_mean(input.substr(0, kMaxNameLength), names)));
      }
      inputs.push_back(found->second);
    }
    return in_place(layer.line, [&] {
      LayerAttributes attributes(file_, layer.line, layer.name, std::move(layer.attributes), data_);
      return network.add(layer.name, make_layer(layer.type, attributes), std::move(inputs));
    });
  }

  std::string usual_loss() const {
    if (data_.classes < 1 && data_.targets < 1) {
      throw FileError(fmt::format("{}: neither the data nor the key 'input' has classes or targets", file_));
    }
    return data_.classes > 0 ? "softmax_cross_entropy" : "mean_squared_error";
  }

  std::string file_;
  SampleSpec data_;
};

}  // namespace

Graph load_model_file(const std::filesystem::path& path, const SampleSpec& data) {
  return parse_model(read_file(path), path.string(), data);
}

Graph parse_model(std::string_view text, const std::string& file, const SampleSpec& data) {
  return ModelReader(file, data).read(text);
}

}  // namespace distbelief
