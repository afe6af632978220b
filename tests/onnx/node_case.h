#pragma once

#include <onnx/onnx_pb.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "tensor/shape.h"

namespace distbelief {

/// A tensor of a node test; whatever its type, its elements as floats.
struct NodeTensor {
  std::string name;  ///< empty: an optional input that the test leaves out
  Shape shape;
  std::vector<float> values;
};

/// One of ONNX's node tests: an operator with its attributes, what it is given and what it must give.
class NodeCase {
 public:
  /// Loads `<folder>/model.onnx` and its first data set. Throws FileError, which fails the test, if anything is
  /// missing.
  explicit NodeCase(const std::filesystem::path& folder) : folder_(folder) {
    onnx::ModelProto model;
    parse(folder / "model.onnx", model);
    if (model.graph().node_size() != 1) {
      throw FileError(folder.string() + ": expected a model of one node");
    }
    node_ = model.graph().node(0);
    std::map<std::string, NodeTensor> constants;
    for (const onnx::TensorProto& constant : model.graph().initializer()) {
      constants.emplace(constant.name(), decode_tensor(constant, folder / "model.onnx", constant.name()));
    }
    inputs_ = tensors(model.graph().input(), node_.input(), "input_", constants);
    outputs_ = tensors(model.graph().output(), node_.output(), "output_", {});
  }

  /// By the name of its folder in the data of libonnx-testdata.
  static NodeCase named(const std::string& name) { return NodeCase(std::filesystem::path(ONNX_NODE_TESTS) / name); }

  /// The same for the models that PyTorch exported; their parameters are constants of the model.
  static NodeCase exported(const std::string& name) {
    return NodeCase(std::filesystem::path(ONNX_NODE_TESTS).parent_path() / "pytorch-converted" / name);
  }

  const std::string& op() const { return node_.op_type(); }
  /// In the order of the operator's definition.
  const std::vector<NodeTensor>& inputs() const { return inputs_; }
  const std::vector<NodeTensor>& outputs() const { return outputs_; }

  /// Attributes; `otherwise` is the operator's default, for those that the test does not set.
  float number(const std::string& name, float otherwise) const {
    const auto* found = attribute(name);
    return found == nullptr ? otherwise : found->f();
  }
  std::int64_t integer(const std::string& name, std::int64_t otherwise) const {
    const auto* found = attribute(name);
    return found == nullptr ? otherwise : found->i();
  }
  std::string text(const std::string& name, const std::string& otherwise) const {
    const auto* found = attribute(name);
    return found == nullptr ? otherwise : found->s();
  }
  std::vector<std::int64_t> integers(const std::string& name, const std::vector<std::int64_t>& otherwise) const {
    const auto* found = attribute(name);
    return found == nullptr ? otherwise : std::vector<std::int64_t>(found->ints().begin(), found->ints().end());
  }
  bool has(const std::string& name) const { return attribute(name) != nullptr; }

 private:
  template <typename Message>
  static void parse(const std::filesystem::path& path, Message& message) {
    std::ifstream file(path, std::ios::binary);
    if (!file || !message.ParseFromIstream(&file)) {
      throw FileError(path.string() + ": expected a readable ONNX message; is the package libonnx-testdata installed?");
    }
  }

  /// A tensor's elements are in its raw bytes or in the field of its type.
  template <typename Element>
  static std::vector<float> decode(const std::string& raw, const auto& field) {
    std::vector<float> values;
    for (std::size_t at = 0; at + sizeof(Element) <= raw.size(); at += sizeof(Element)) {
      Element element;
      std::memcpy(&element, raw.data() + at, sizeof(Element));
      values.push_back(static_cast<float>(element));
    }
    for (const auto element : field) {
      values.push_back(static_cast<float>(element));
    }
    return values;
  }

  static NodeTensor load(const std::filesystem::path& path, const std::string& name) {
    onnx::TensorProto proto;
    parse(path, proto);
    return decode_tensor(proto, path, name);
  }

  static NodeTensor decode_tensor(const onnx::TensorProto& proto, const std::filesystem::path& path,
                                  const std::string& name) {
    NodeTensor tensor{name, Shape(std::vector<std::int64_t>(proto.dims().begin(), proto.dims().end())), {}};
    const std::string& raw = proto.raw_data();
    switch (proto.data_type()) {
      case onnx::TensorProto::FLOAT:
        tensor.values = decode<float>(raw, proto.float_data());
        break;
      case onnx::TensorProto::DOUBLE:
        tensor.values = decode<double>(raw, proto.double_data());
        break;
      case onnx::TensorProto::INT64:
        tensor.values = decode<std::int64_t>(raw, proto.int64_data());
        break;
      case onnx::TensorProto::INT32:
        tensor.values = decode<std::int32_t>(raw, proto.int32_data());
        break;
      case onnx::TensorProto::BOOL:
        tensor.values = decode<std::uint8_t>(raw, proto.int32_data());
        break;
      default:
        throw FileError(path.string() + ": a type of elements that the tests do not read");
    }
    if (static_cast<std::int64_t>(tensor.values.size()) != tensor.shape.elements()) {
      throw FileError(path.string() + ": expected as many elements as the shape " + tensor.shape.text() + " has");
    }
    return tensor;
  }

  /// The files are numbered as the graph lists its values, which need not be the node's order. Constants may be listed
  /// too, but have no file.
  std::vector<NodeTensor> tensors(const auto& listed, const auto& used, const std::string& prefix,
                                  const std::map<std::string, NodeTensor>& constants) const {
    std::map<std::string, int> numbers;
    for (const auto& value : listed) {
      if (!constants.contains(value.name())) {
        numbers.emplace(value.name(), static_cast<int>(numbers.size()));
      }
    }
    std::vector<NodeTensor> loaded;
    for (const std::string& name : used) {
      if (name.empty()) {
        loaded.emplace_back();
      } else if (const auto constant = constants.find(name); constant != constants.end()) {
        loaded.push_back(constant->second);
      } else {
        const std::string file = prefix + std::to_string(numbers.at(name)) + ".pb";
        loaded.push_back(load(folder_ / "test_data_set_0" / file, name));
      }
    }
    return loaded;
  }

  const onnx::AttributeProto* attribute(const std::string& name) const {
    for (const auto& one : node_.attribute()) {
      if (one.name() == name) {
        return &one;
      }
    }
    return nullptr;
  }

  std::filesystem::path folder_;
  onnx::NodeProto node_;
  std::vector<NodeTensor> inputs_;
  std::vector<NodeTensor> outputs_;
};

}  // namespace distbelief
