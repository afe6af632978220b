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
  const std::int64_t scores = GetParam() == "factorization" ? 1 : info().default_data.classes;
  EXPECT_EQ(graph.node(graph.output()).output.shape, (Shape{1, scores}));
  EXPECT_EQ(graph.name(), GetParam());
}

TEST_P(EveryModel, AdaptsToTheNumberOfClasses) {
  if (GetParam() == "factorization") {
    EXPECT_THAT(message_of({.source = "factorization", .data = {.input = {9}, .sparse = true, .classes = 3}}),
                HasSubstr("needs data with 2 classes or 1 target"));
    return;
  }
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

TEST(Linear, TakesSparseRowsAndImages) {
  const SampleSpec images = {.input = {1, 28, 28}, .classes = 10};
  EXPECT_EQ(optimized_parameters(make_model({.source = "logistic", .data = images})), 7850);
  EXPECT_EQ(make_model({.source = "svm"}).loss().type(), "hinge");
  EXPECT_EQ(make_model({.source = "logistic"}).node(0).output.kind, ValueKind::sparse);
  EXPECT_EQ(message_of({.source = "logistic", .data = {.input = {5}, .indices = true, .classes = 2}}),
            "model logistic needs floats or sparse rows; this data has integers 5 with 2 classes");
  EXPECT_EQ(message_of({.source = "svm", .data = {.input = {5}, .targets = 1}}),
            "model svm needs data with classes; this data has floats 5 with 1 target");
}

TEST(Factorization, PredictsANumberToo) {
  const SampleSpec ratings = {.input = {50}, .sparse = true, .targets = 1};
  const Graph graph = make_model({.source = "factorization", .data = ratings, .options = {{"factors", "3"}}});
  EXPECT_EQ(graph.loss().type(), "mean_squared_error");
  EXPECT_EQ(optimized_parameters(graph), 1 + 50 + 150);
}

TEST(Mlp, PredictsNumbersToo) {
  const Graph graph = make_model({.source = "mlp", .data = {.input = {6}, .targets = 2}});
  EXPECT_EQ(graph.loss().type(), "mean_squared_error");
  EXPECT_EQ(graph.node(graph.output()).output.shape, (Shape{1, 2}));
}

TEST(Mlp, HasDropoutOnRequest) {
  const Graph graph = make_model({.source = "mlp", .options = {{"dropout", "0.5"}}});
  EXPECT_EQ(graph.node(4).name, "dropout1");
  EXPECT_THAT(message_of({.source = "mlp", .options = {{"dropout", "1"}}}),
              HasSubstr("option 'dropout': expected a number from 0 to 0.99, got '1'"));
}

TEST(LocalImage, GrowsToTheParametersAskedFor) {
  const SampleSpec photographs = {.input = {3, 100, 100}, .classes = 1000};
  const ModelRequest request = {
      .source = "local-image", .data = photographs, .options = {{"kernel", "10"}, {"parameters", "1.7e9"}}};
  const auto parameters = static_cast<double>(optimized_parameters(make_model(request)));
  EXPECT_GE(parameters, 1.7e9);
  EXPECT_LE(parameters, 1.8e9);
}

TEST(LocalImage, LeavesOutPoolingOfASinglePlace) {
  const Graph graph = make_model({.source = "local-image"});
  std::string types;
  for (const LayerRow& row : summarize(graph).rows) {
    types += row.name + " ";
  }
  EXPECT_EQ(types, "input local1 pool1 norm1 local2 pool2 norm2 local3 norm3 flatten output ");
}

TEST(LocalImage, SaysWhichStageDoesNotFit) {
  EXPECT_THAT(message_of({.source = "local-image", .data = {.input = {3, 24, 24}, .classes = 10}}),
              HasSubstr("model local-image, layer 'local3'"));
}

TEST(Zoo, SuggestsTheNearestName) { EXPECT_THAT(message_of({.source = "lennet"}), HasSubstr("did you mean 'lenet'?")); }

}  // namespace
}  // namespace distbelief
