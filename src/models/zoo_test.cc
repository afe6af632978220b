#include "models/zoo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "models/model_text.h"

namespace distbelief {
namespace {

using testing::HasSubstr;

std::int64_t optimized_parameters(const Graph& graph) { return summarize(graph).parameters; }

std::string message_of(const ModelRequest& request) {
  try {
    make_model(request);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

class EveryModel : public testing::TestWithParam<std::string> {
 protected:
  static ModelInfo info() {
    for (ModelInfo& info : known_models()) {
      if (info.name == GetParam()) {
        return info;
      }
    }
    return {};
  }
};

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ModelInfo& info : known_models()) {
    names.push_back(info.name);
  }
  return names;
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::erase(name, '-');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Zoo, EveryModel, testing::ValuesIn(model_names()), test_name);

TEST_P(EveryModel, HasThePublishedNumberOfParameters) {
  EXPECT_EQ(optimized_parameters(make_model({.source = GetParam()})), info().parameters);
}

TEST_P(EveryModel, GivesOneScoreForEachClass) {
  const Graph graph = make_model({.source = GetParam()});
  EXPECT_EQ(graph.node(graph.output()).output.shape, (Shape{1, info().default_data.classes}));
  EXPECT_EQ(graph.name(), GetParam());
}

TEST_P(EveryModel, AdaptsToTheNumberOfClasses) {
  SampleSpec data = info().default_data;
  data.classes = 7;
  const Graph graph = make_model({.source = GetParam(), .data = data});
  EXPECT_EQ(graph.node(graph.output()).output.shape, (Shape{1, 7}));
}

TEST_P(EveryModel, SaysWhichOptionsItHas) {
  EXPECT_THAT(message_of({.source = GetParam(), .options = {{"nonsense", "1"}}}), HasSubstr("no option 'nonsense'"));
}

TEST(Lenet, AdaptsToTheImage) {
  const Graph graph = make_model({.source = "lenet", .data = {.input = {3, 32, 40}, .classes = 5}});
  EXPECT_EQ(graph.node(6).output.shape, (Shape{1, 64, 8, 10}));
  EXPECT_EQ(graph.node(7).output.shape, (Shape{1, 64 * 8 * 10}));
}

TEST(Lenet, SaysThatItNeedsImages) {
  EXPECT_EQ(message_of({.source = "lenet", .data = {.input = {440}, .classes = 10}}),
            "model lenet needs images (channels x height x width); this data has floats 440 with 10 classes");
  EXPECT_EQ(message_of({.source = "lenet", .data = {.input = {123}, .sparse = true, .classes = 1}}),
            "model lenet needs images (channels x height x width); this data has sparse rows of 123 columns with 1 "
            "class");
  EXPECT_THAT(message_of({.source = "lenet", .data = {.input = {3, 3, 9}, .classes = 2}}), HasSubstr("at least 4x4"));
}

TEST(Mlp, TakesRowsAndHiddenSizes) {
  const Graph graph =
      make_model({.source = "mlp", .data = {.input = {20}, .classes = 3}, .options = {{"hidden", "8,4,2"}}});
  EXPECT_EQ(optimized_parameters(graph), 20 * 8 + 8 + 8 * 4 + 4 + 4 * 2 + 2 + 2 * 3 + 3);
}

TEST(Mlp, RefusesHiddenSizesThatAreNoNumbers) {
  for (const char* bad : {"8,x", "0", "-1", "8,", ",", "8;4", "1e3", "99999999999999999999"}) {
    EXPECT_THAT(message_of({.source = "mlp", .options = {{"hidden", bad}}}),
                HasSubstr(fmt::format("model mlp: option 'hidden': expected integers of 1 or more with commas between, "
                                      "got '{}'",
                                      bad)));
  }
}

TEST(Mlp, IsRefusedWhenNoMachineCouldHoldIt) {
  EXPECT_THAT(message_of({.source = "mlp", .options = {{"hidden", "100000000,100000000"}}}), HasSubstr("too large"));
  EXPECT_THAT(message_of({.source = "mlp", .options = {{"hidden", "9223372036854775807"}}}),
              HasSubstr("model mlp, layer 'hidden1'"));
}

TEST(Resnet, HalvesTheImageInTheSecondConvolution) {
  const Graph graph = make_model({.source = "resnet50"});
  for (const Node& node : graph.nodes()) {
    if (node.name == "layer2.0.conv1") {
      EXPECT_EQ(node.output.shape, (Shape{1, 128, 56, 56}));
    } else if (node.name == "layer2.0.conv2") {
      EXPECT_EQ(node.output.shape, (Shape{1, 128, 28, 28}));
    } else if (node.name == "layer4.2.relu") {
      EXPECT_EQ(node.output.shape, (Shape{1, 2048, 7, 7}));
    }
  }
}

TEST(Resnet, HasAStemForSmallImages) {
  const SampleSpec cifar = {.input = {3, 32, 32}, .classes = 10};
  const Graph graph = make_model({.source = "resnet18", .data = cifar, .options = {{"stem", "small"}}});
  EXPECT_EQ(optimized_parameters(graph), 11173962);
  EXPECT_THAT(message_of({.source = "resnet18", .options = {{"stem", "smal"}}}), HasSubstr("did you mean 'small'?"));
}

TEST(Resnet, BeginsAsTheIdentityOnRequest) {
  const Graph graph = make_model({.source = "resnet18", .options = {{"zero_init", "true"}}});
  int silent = 0;
  for (NodeId id = 1; id <= graph.output(); ++id) {
    for (const ParameterSpec& parameter : graph.node(id).layer->parameters(graph.input_specs(id))) {
      silent += parameter.name == "scale" && parameter.init.kind == Initializer::Kind::zeros ? 1 : 0;
    }
  }
  EXPECT_EQ(silent, 8);
}

TEST(Zoo, SuggestsTheNearestName) { EXPECT_THAT(message_of({.source = "lennet"}), HasSubstr("did you mean 'lenet'?")); }

}  // namespace
}  // namespace distbelief
