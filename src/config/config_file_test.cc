#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "config/run_config.h"

namespace distbelief {
namespace {

RunConfig read(const std::string& text) {
  RunConfig config;
  apply_config_text(config, text, "run.yaml");
  return config;
}

std::string complaint(const std::string& text) {
  try {
    read(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ConfigFile, ReadsBackWhatItWrites) {
  RunConfig config;
  config.model = "a \"b\"\\\n\tc: #d";
  config.data = "null";
  config.out = "-";
  config.model_options = {{"hidden", "4,5"}, {"loss", "hinge"}};
  config.freeze = {"conv*", "fc.?"};
  config.milestones = {1.5, 3};
  config.lr = 1e-7;
  config.flip = true;
  const std::string text = config_text(config);
  const RunConfig again = read(text);
  EXPECT_EQ(config_text(again), text);
  EXPECT_EQ(again.model, config.model);
  EXPECT_EQ(again.data, "null");
  EXPECT_EQ(again.out, "-");
  EXPECT_EQ(again.model_options, config.model_options);
  EXPECT_EQ(again.freeze, config.freeze);
}

TEST(ConfigFile, TakesListsAndMapsOfListsOrTheirPlainText) {
  for (const char* text :
       {"model-options: {hidden: [4, 5], dropout: 0.5}", "model-options: 'hidden=4,5,dropout=0.5'"}) {
    const RunConfig config = read(text);
    EXPECT_EQ(config.model_options.at("hidden"), "4,5") << text;
    EXPECT_EQ(config.model_options.at("dropout"), "0.5") << text;
  }
  EXPECT_THAT(read("milestones: [1, 2]").milestones, testing::ElementsAre(1, 2));
  EXPECT_THAT(read("milestones: 1,2").milestones, testing::ElementsAre(1, 2));
}

TEST(ConfigFile, ComplaintsAreOneLineWithFileLineAndKey) {
  EXPECT_THAT(complaint("epochs: 2\nlr: \"fa\\nst\""), testing::StartsWith("run.yaml:2: key 'lr': "));
  EXPECT_THAT(complaint("lr: \"fa\\nst\""), testing::Not(testing::HasSubstr("\n")));
  EXPECT_THAT(complaint("epoch: 2"), testing::HasSubstr("did you mean 'epochs'?"));
  EXPECT_THAT(complaint("epochs: {a: {b: c}}"), testing::StartsWith("run.yaml:1: key 'epochs': "));
  EXPECT_THAT(complaint("[epochs]"), testing::StartsWith("run.yaml:1: "));
  EXPECT_THAT(complaint(", a"), testing::StartsWith("run.yaml"));
}

}  // namespace
}  // namespace distbelief
