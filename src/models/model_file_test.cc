#include "models/model_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "models/layer_factory.h"
#include "models/model_text.h"
#include "models/name_hash.h"

namespace distbelief {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const SampleSpec kGreyImages = {.input = {1, 28, 28}, .classes = 10};

Graph parse(std::string_view text, const SampleSpec& data = kGreyImages) { return parse_model(text, "m.yaml", data); }

std::string message_of(std::string_view text, const SampleSpec& data = kGreyImages) {
  try {
    parse(text, data);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

std::vector<std::string> names(const Graph& graph) {
  std::vector<std::string> result;
  for (const Node& node : graph.nodes()) {
    result.push_back(node.name);
  }
  return result;
}

TEST(ModelFile, BuildsASequence) {
  const Graph graph = parse(R"(
name: tiny
layers:
  - conv2d: {name: first, filters: 16, kernel: 3, padding: same}
  - relu
  - max_pool: {kernel: 2}
  - conv2d: {filters: 8, kernel: [3, 5], stride: [2, 1], padding: [1, 2], bias: false}
  - relu
  - flatten
  - dense: {units: classes}
)");
  EXPECT_EQ(graph.name(), "tiny");
  EXPECT_THAT(names(graph),
              ElementsAre("input", "first", "relu1", "max_pool1", "conv2d1", "relu2", "flatten1", "dense1"));
  EXPECT_EQ(graph.node(3).output.shape, (Shape{1, 16, 14, 14}));
  EXPECT_EQ(graph.node(4).output.shape, (Shape{1, 8, 7, 14}));
  EXPECT_EQ(summarize(graph).parameters, 16 * 9 + 16 + 8 * 16 * 15 + 8 * 98 * 10 + 10);
  EXPECT_EQ(graph.loss().type(), "softmax_cross_entropy");
}

TEST(ModelFile, BuildsBranches) {
  const Graph graph = parse(R"(
layers:
  - conv2d: {name: a, filters: 4, kernel: 3, padding: same}
  - conv2d: {name: b, filters: 4, kernel: 1, inputs: input}
  - add: {inputs: [a, b]}
  - concat: {inputs: [add1, a, input]}
  - global_average_pool
  - flatten
  - dense: {units: classes}
loss: hinge
)");
  EXPECT_EQ(graph.node(3).inputs, (std::vector<NodeId>{1, 2}));
  EXPECT_EQ(graph.node(4).output.shape, (Shape{1, 9, 28, 28}));
  EXPECT_EQ(graph.loss().type(), "hinge");
}

TEST(ModelFile, GivesNamesThatNobodyHas) {
  const Graph graph = parse("layers: [{flatten: {name: dense1}}, {dense: {units: 5}}, {dense: {units: classes}}]");
  EXPECT_THAT(names(graph), ElementsAre("input", "dense1", "dense2", "dense3"));
}

TEST(ModelFile, UsesItsOwnInputWithoutData) {
  const Graph graph = parse("{input: {shape: [5], targets: 2}, layers: [{dense: {units: targets}}]}", {});
  EXPECT_EQ(graph.node(0).output.shape, (Shape{1, 5}));
  EXPECT_EQ(graph.loss().type(), "mean_squared_error");
  EXPECT_THAT(message_of("layers: [{dense: {units: 3}}]", {}),
              AllOf(StartsWith("m.yaml: "), HasSubstr("no data is given"), HasSubstr("input: {shape: [1, 28, 28]")));
  EXPECT_THAT(message_of("input: {shape: [5]}\nlayers: [{dense: {units: 3}}]", {}),
              HasSubstr("m.yaml: neither the data nor the key 'input' has classes or targets"));
}

TEST(ModelFile, TakesSparseRows) {
  const SampleSpec rows = {.input = {1000}, .sparse = true, .classes = 2};
  const Graph graph = parse("{input: {kind: sparse}, layers: [{dense: {units: classes}}]}", rows);
  EXPECT_EQ(graph.node(0).output.kind, ValueKind::sparse);
  EXPECT_EQ(summarize(graph).parameters, 2002);
}

TEST(ModelFile, ComparesItsInputWithTheData) {
  const std::string layers = "\nlayers: [flatten, {dense: {units: classes}}]";
  EXPECT_EQ(message_of("input: {shape: [3, 28, 28]}" + layers),
            "m.yaml:1: key 'shape' of layer 'input': expected the shape of the data, 1x28x28, got [3, 28, 28]");
  EXPECT_EQ(message_of("input:\n  kind: sparse" + layers),
            "m.yaml:2: key 'kind' of layer 'input': expected the kind of the data, dense, got 'sparse'");
  EXPECT_EQ(message_of("input: {classes: 100}" + layers),
            "m.yaml:1: key 'classes' of layer 'input': expected the classes of the data, 10, got '100'");
  EXPECT_THAT(message_of("input: {shap: [1]}" + layers), HasSubstr("did you mean 'shape'?"));
}

TEST(ModelFile, NamesTheNearestKeyAndType) {
  EXPECT_EQ(message_of("layers:\n  - conv2d: {name: conv1, filters: 4, kernl: 3, kernel: 3}"),
            "m.yaml:2: key 'kernl' of layer 'conv1': conv2d has no such key, only bias, dilation, filters, groups, "
            "kernel, padding, stride, name and inputs; did you mean 'kernel'?");
  EXPECT_THAT(message_of("layers:\n  - relu\n  - conv2: {filters: 4}"),
              AllOf(StartsWith("m.yaml:3: there is no layer 'conv2'"), HasSubstr("did you mean 'conv2d'?")));
  EXPECT_THAT(message_of("layer: [relu]"), AllOf(StartsWith("m.yaml:1: "), HasSubstr("did you mean 'layers'?")));
  EXPECT_THAT(message_of("layers: [flatten, {dense: {units: 10}}]\nloss: hinges"),
              AllOf(StartsWith("m.yaml:2: "), HasSubstr("did you mean 'hinge'?")));
  EXPECT_THAT(message_of("layers: [{relu: {name: here}}, {add: {inputs: [her, input]}}]"),
              HasSubstr("key 'inputs' of layer 'add1': expected the name of a layer before it or 'input', got 'her'; "
                        "did you mean 'here'?"));
}

TEST(ModelFile, NamesTheKeyThatIsMostLikelyTheMissingOne) {
  EXPECT_EQ(message_of("layers:\n  - flatten\n  - dense:\n      bias: true\n      unit: 10"),
            "m.yaml:5: key 'unit' of layer 'dense1': there is no such key; did you mean 'units': a positive integer, "
            "'classes' or 'targets'?");
  EXPECT_EQ(message_of("layers: [{max_pool: {stride: 2, kernal: 2}}]"),
            "m.yaml:1: key 'kernal' of layer 'max_pool1': there is no such key; did you mean 'kernel': a positive "
            "integer, or [height, width]?");
  EXPECT_EQ(message_of("layers: [relu, {add: {input: [relu1, input]}}]"),
            "m.yaml:1: key 'input' of layer 'add1': there is no such key; did you mean 'inputs': the names of two or "
            "more layers?");
}

TEST(ModelFile, ChoosesHowDenseLayersBegin) {
  const auto deviation = [](const std::string& init) {
    const Graph graph = parse("layers: [flatten, {dense: {units: classes" + init + "}}]");
    const auto parameters = graph.node(2).layer->parameters({{graph.node(1).output}});
    return parameters[0].init.scale;
  };
  EXPECT_EQ(deviation(", init: he"), Initializer::he(784).scale);
  EXPECT_EQ(deviation(", init: glorot"), Initializer::glorot(784, 10).scale);
  EXPECT_EQ(deviation(", init: small"), Initializer::small(784).scale);
  EXPECT_EQ(deviation(""), deviation(", init: he"));
  EXPECT_EQ(message_of("layers: [flatten, {dense: {units: 10, init: tiny}}]"),
            "m.yaml:1: key 'init' of layer 'dense1': expected he or glorot or small, got 'tiny'");
}

TEST(ModelFile, SaysWhatWasExpectedAndWhatCame) {
  const auto conv = [](const std::string& keys) { return message_of("layers:\n  - conv2d: {name: c, " + keys + "}"); };
  EXPECT_EQ(conv("filters: 4, kernel: big"),
            "m.yaml:2: key 'kernel' of layer 'c': expected a positive integer, or two of them as [height, width], got "
            "'big'");
  EXPECT_EQ(conv("filters: 4, kernel: [3, 3, 3]"),
            "m.yaml:2: key 'kernel' of layer 'c': expected a positive integer, or two of them as [height, width], got "
            "[3, 3, 3]");
  EXPECT_EQ(conv("filters: 0, kernel: 3"),
            "m.yaml:2: key 'filters' of layer 'c': expected a positive integer, 'classes' or 'targets', got '0'");
  EXPECT_EQ(
      conv("filters: targets, kernel: 3"),
      "m.yaml:2: key 'filters' of layer 'c': expected a positive integer (the data has no targets), got 'targets'");
  EXPECT_EQ(conv("kernel: 3"),
            "m.yaml:2: layer 'c' needs the key 'filters': a positive integer, 'classes' or 'targets'");
  EXPECT_EQ(conv("filters: 4, kernel: 3, bias: 1"),
            "m.yaml:2: key 'bias' of layer 'c': expected true or false, got '1'");
  EXPECT_EQ(conv("filters: 4, kernel: 2, padding: same"),
            "m.yaml:2: key 'padding' of layer 'c': expected zeros on each side as a number, since the kernel is not "
            "odd, got 'same'");
  EXPECT_EQ(message_of("layers: [{dropout: {rate: 1.5}}]"),
            "m.yaml:1: key 'rate' of layer 'dropout1': expected a number from 0 to 0.999, got '1.5'");
  EXPECT_EQ(message_of("layers: [{add: {name: sum}}]"),
            "m.yaml:1: layer 'sum' needs the key 'inputs': the names of two or more layers");
}

TEST(ModelFile, SaysWhereShapesDoNotFit) {
  EXPECT_THAT(message_of("layers:\n  - flatten\n  - conv2d: {filters: 4, kernel: 3}"),
              StartsWith("m.yaml:3: model m, layer 'conv2d1': conv2d takes images"));
  EXPECT_THAT(message_of("layers:\n  - flatten\n  - dense: {units: 9}\nloss: softmax_cross_entropy"),
              StartsWith("m.yaml:4: model m: loss softmax_cross_entropy needs one score for each of 10 classes"));
}

TEST(ModelFile, RefusesWhatIsNoModel) {
  EXPECT_THAT(message_of(""), StartsWith("m.yaml: expected one YAML document"));
  EXPECT_THAT(message_of("layers: [a"), StartsWith("m.yaml:1: this is not YAML: "));
  EXPECT_THAT(message_of("layers: [relu]\n---\nlayers: [relu]"), HasSubstr("expected one YAML document, got more"));
  EXPECT_THAT(message_of("layers: [relu]\n]"), StartsWith("m.yaml"));
  EXPECT_THAT(message_of(", a\n- b"), StartsWith("m.yaml: expected one YAML document, got more"));
  EXPECT_THAT(message_of("42"), StartsWith("m.yaml:1: a model file: expected keys"));
  EXPECT_THAT(message_of("name: x"), HasSubstr("needs the key 'layers'"));
  EXPECT_THAT(message_of("layers: []"), HasSubstr("expected a list of layers"));
  EXPECT_THAT(message_of("layers:\n  - dense:\n    units: 10"), HasSubstr("2 keys side by side"));
  EXPECT_THAT(message_of("layers: [relu]\nlayers: [relu]"), StartsWith("m.yaml:2: a model file has the key 'layers' "
                                                                       "twice"));
  EXPECT_THAT(message_of("layer:\n  - relu\nlayers: [relu]"), StartsWith("m.yaml:1: a model file has no key 'layer'"));
  EXPECT_THAT(message_of("layers:\n  - dense:\n      unitz:\n        10"), StartsWith("m.yaml:3: "));
  EXPECT_THAT(message_of("layers: [{relu: {name: a}}, {relu: {name: a}}]"), HasSubstr("names must differ"));
  EXPECT_THAT(message_of("layers: [{relu: {name: 'a b'}}]"), HasSubstr("got 'a b'"));
  EXPECT_THAT(message_of("layers: [{relu: {name: input}}]"), HasSubstr("choose another name"));
  EXPECT_THAT(message_of("layers:\n  - {relu: {name: unused}}\n  - flatten: {inputs: input}\n  - dense: {units: 10}"),
              HasSubstr("nothing uses layer 'unused'"));
  EXPECT_THAT(message_of(std::string(2 << 20, '#')), HasSubstr("bytes are too many"));
}

TEST(ModelFile, SaysEverythingInOneLine) {
  for (const char* text :
       {"layers: [relu]\nloss: \"a\\nb\"", "layers: [\"a\\nb\"]", "\"a\\nb\": 1", "layers: [{relu: {\"a\\nb\": 1}}]",
        "layers: [{dropout: {rate: \"a\\nb\"}}]", "layers: [{relu: {inputs: \"a\\nb\"}}]", "a: [\n%\n"}) {
    EXPECT_THAT(message_of(text), AllOf(StartsWith("m.yaml:"), Not(HasSubstr("\n")))) << text;
  }
}

TEST(ModelFile, RefusesSizesThatNoMachineHas) {
  EXPECT_THAT(message_of("layers: [flatten, {dense: {units: 10000000}}, {dense: {units: 2147483647}}]"),
              AllOf(StartsWith("m.yaml:1: model m, layer 'dense2'"), HasSubstr("too large")));
  EXPECT_THAT(message_of("layers: [flatten, {dense: {units: 99999999999999999999}}]"), HasSubstr("at most 2147483647"));
  EXPECT_THAT(message_of("layers: [{conv2d: {filters: 2147483647, kernel: 4096, padding: 2000000000}}]"),
              StartsWith("m.yaml:1: model m, layer 'conv2d1'"));
  EXPECT_THAT(message_of("layers: [{max_pool: {kernel: 2147483647}}]"), HasSubstr("a window of at most"));
  EXPECT_THAT(message_of("input: {shape: [2147483647, 2147483647, 2147483647], classes: 2}\nlayers: [flatten]", {}),
              StartsWith("m.yaml"));
  EXPECT_THAT(message_of("layers: [{reshape: {shape: [2147483647, 2147483647, 2147483647]}}]"),
              HasSubstr("a shape whose elements can be counted"));
}

TEST(LayerFactory, ListsItsTypesInOrder) {
  const std::vector<std::string_view> types = layer_types();
  EXPECT_TRUE(std::is_sorted(types.begin(), types.end()));
}

TEST(NameHash, IsFixedForever) { EXPECT_EQ(name_hash("dropout1"), 0xfa3d1c866899c713U); }

}  // namespace
}  // namespace distbelief
