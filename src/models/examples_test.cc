#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "models/layer_factory.h"
#include "models/model_text.h"
#include "models/zoo.h"

namespace distbelief {
namespace {

using testing::HasSubstr;

const std::filesystem::path kProject = std::filesystem::path(TEST_DATA_DIR).parent_path().parent_path();

Graph example(const std::string& name, const SampleSpec& data) {
  return make_model({.source = (kProject / "examples/models" / name).string(), .data = data});
}

const SampleSpec kImages = {.input = {3, 32, 32}, .classes = 10};

TEST(Examples, AllBuild) {
  const std::map<std::string, SampleSpec> data = {
      {"mlp.yaml", kImages},
      {"convnet.yaml", {}},
      {"residual.yaml", kImages},
      {"small-cnn.yaml", {}},
      {"sparse-logistic.yaml", {.input = {500}, .sparse = true, .classes = 3}},
      {"embedding.yaml", {}}};
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kProject / "examples/models")) {
    const std::string name = entry.path().filename().string();
    ASSERT_TRUE(data.contains(name)) << name << " is not tested";
    EXPECT_GT(summarize(example(name, data.at(name))).parameters, 0) << name;
    ++files;
  }
  EXPECT_EQ(files, static_cast<int>(data.size()));
}

TEST(Examples, TheResidualNetworkHalvesItsImageOnce) {
  const ModelSummary summary = summarize(example("residual.yaml", kImages));
  EXPECT_EQ(summary.rows[summary.rows.size() - 4].output, (Shape{32, 16, 16}));
  EXPECT_EQ(summary.rows.back().output, (Shape{10}));
}

TEST(Documentation, NamesEveryModelOptionAndLayer) {
  const std::string text = read_file(kProject / "docs/models.md");
  for (const ModelInfo& info : known_models()) {
    EXPECT_THAT(text, HasSubstr("| `" + info.name + "` |"));
    for (const ModelOption& option : info.options) {
      EXPECT_THAT(text, HasSubstr("`" + option.name + "` " + option.default_value));
    }
  }
  for (const std::string_view type : layer_types()) {
    EXPECT_THAT(text, HasSubstr("`" + std::string(type) + "`"));
  }
}

}  // namespace
}  // namespace distbelief
