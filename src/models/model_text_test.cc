#include "models/model_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/zoo.h"

namespace distbelief {
namespace {

using testing::HasSubstr;

TEST(ModelText, CountsWhatLenetHas) {
  const ModelSummary summary = summarize(make_model({.source = "lenet"}));
  EXPECT_EQ(summary.parameters, 832 + 51264 + 1606144 + 5130);
  EXPECT_EQ(summary.statistics, 0);
  EXPECT_EQ(summary.parameter_bytes, 4 * summary.parameters);
  ASSERT_EQ(summary.rows.size(), 11U);
  EXPECT_EQ(summary.rows[0].name, "input");
  EXPECT_EQ(summary.rows[1].output, (Shape{32, 28, 28}));
  EXPECT_EQ(summary.rows[1].flops, 2 * 28 * 28 * 32 * 25);
  EXPECT_EQ(summary.rows[4].inputs, std::vector<std::string>{"pool1"});
  // conv, pool with ReLU, conv, pool with ReLU, dense with ReLU, dense
  EXPECT_EQ(summary.activation_bytes, 4 * (32 * 784 + 32 * 196 + 64 * 196 + 64 * 49 + 512 + 10));
}

TEST(ModelText, CountsStatisticsApart) {
  const ModelSummary summary = summarize(make_model({.source = "resnet50"}));
  EXPECT_EQ(summary.statistics, 53120);
  EXPECT_NEAR(static_cast<double>(summary.flops), 8.2e9, 0.2e9);
}

TEST(ModelText, ShowsATableAndTotals) {
  const std::string text = model_text(summarize(make_model({.source = "lenet"})));
  EXPECT_THAT(text, HasSubstr("layer    type      output    parameters   FLOPs\n"));
  EXPECT_THAT(text, HasSubstr("conv2    conv2d    64x14x14      51,264  20.1 M\n"));
  EXPECT_THAT(text, HasSubstr("parameters   1,663,370, 6.35 MiB\n"));
  EXPECT_THAT(text, HasSubstr("model        lenet, loss softmax_cross_entropy\n"));
}

}  // namespace
}  // namespace distbelief
