#include "compare/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace distbelief {
namespace {

using testing::HasSubstr;
using testing::Not;

class ComparisonTest : public testing::Test {
 protected:
  ComparisonTest() { std::filesystem::create_directories(folder_); }
  ~ComparisonTest() override { std::filesystem::remove_all(folder_); }

  void write_metrics(const std::string& run, const std::string& text) {
    std::filesystem::create_directories(folder_ / run);
    write_file_atomically(folder_ / run / "metrics.jsonl", text);
  }
  void write_summary(const std::string& run, const std::string& status, const std::string& more = "") {
    std::filesystem::create_directories(folder_ / run);
    write_file_atomically(folder_ / run / "summary.json",
                          R"({"algorithm": ")" + run + R"(", "status": ")" + status +
                              R"(", "workers": 2, "servers": 1, "threads": 1, "train_seconds": 3.5,)"
                              R"("samples_per_second": 40000)" +
                              more + "}");
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() /
      (std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) + std::to_string(::getpid()));
};

constexpr const char* kTwoEpochs =
    R"({"step": 1, "epoch": 0.1, "time": 0.5, "train_loss": 2}
{"step": 10, "epoch": 1, "time": 1.5, "samples": 600, "sent_bytes": 6000, "test_loss": 0.6, "test_accuracy": 0.8}
{"step": 20, "epoch": 2, "time": 3.0, "samples": 1200, "sent_bytes": 18000, "test_loss": 0.5, "test_accuracy": 0.9}
)";

TEST_F(ComparisonTest, ARunIsReadFromItsFolder) {
  write_metrics("async", kTwoEpochs);
  write_summary("async", "finished", R"(, "staleness": {"mean": 1.5, "max": 4})");
  const Measure measure = {.target = 0.85};
  const ComparedRun run = read_compared_run(folder_ / "async", "async", measure);
  EXPECT_TRUE(run.is_over());
  ASSERT_EQ(run.points.size(), 2);
  EXPECT_EQ(run.best(measure)->score, 0.9);
  EXPECT_EQ(run.reached(measure)->seconds, 3.0);
  EXPECT_EQ(run.bytes_per_sample, 15);
  EXPECT_EQ(run.staleness_mean, 1.5);
  EXPECT_EQ(run.staleness_max, 4);
  EXPECT_EQ(run.samples_per_second, 40000);
}

TEST_F(ComparisonTest, ALossIsReachedFromAbove) {
  write_metrics("local", kTwoEpochs);
  const Measure measure = {.is_accuracy = false, .target = 0.55};
  const ComparedRun run = read_compared_run(folder_ / "local", "local", measure);
  EXPECT_EQ(run.best(measure)->score, 0.5);
  EXPECT_EQ(run.reached(measure)->seconds, 3.0);
  const Measure never = {.is_accuracy = false, .target = 0.1};
  EXPECT_EQ(run.reached(never), nullptr);
}

TEST_F(ComparisonTest, ARunThatHasNotBegunWaits) {
  const ComparedRun run = read_compared_run(folder_ / "nothing", "downpour:n-push=8", {});
  EXPECT_EQ(run.status, "waiting");
  EXPECT_EQ(run.algorithm, "downpour");
  EXPECT_FALSE(run.is_over());
  EXPECT_EQ(run.best({}), nullptr);
}

TEST_F(ComparisonTest, AnInterruptedOrLostRunIsNotOver) {
  for (const char* status : {"interrupted", "lost"}) {
    write_summary("sync", status);
    EXPECT_FALSE(read_compared_run(folder_ / "sync", "sync", {}).is_over());
  }
  write_summary("sync", "diverged");
  EXPECT_TRUE(read_compared_run(folder_ / "sync", "sync", {}).is_over());
}

TEST_F(ComparisonTest, WhatIsWrittenIsReadBack) {
  Comparison comparison = {.model = "mlp",
                           .data = "fashion-mnist",
                           .seed = 7,
                           .measure = {.on_validation = true, .target = 0.88},
                           .entries = {{"local", "local"}, {"downpour:n-push=8", "downpour-n-push-8"}}};
  comparison.look(folder_);
  write_comparison(folder_, comparison);
  const Comparison read = read_comparison(folder_);
  EXPECT_EQ(read.model, "mlp");
  EXPECT_EQ(read.seed, 7);
  EXPECT_TRUE(read.measure.is_accuracy);
  EXPECT_TRUE(read.measure.on_validation);
  EXPECT_EQ(read.measure.target, 0.88);
  ASSERT_EQ(read.entries.size(), 2);
  EXPECT_EQ(read.entries[1].label, "downpour:n-push=8");
  EXPECT_EQ(read.entries[1].folder, "downpour-n-push-8");
}

TEST_F(ComparisonTest, DamageIsNamed) {
  EXPECT_THROW((void)read_comparison(folder_), InputError);
  write_file_atomically(folder_ / "compare.json", "{\"model\": 3");
  EXPECT_THROW((void)read_comparison(folder_), FileError);
  write_file_atomically(folder_ / "summary.json", "[]");
  EXPECT_THROW((void)read_compared_run(folder_, "local", {}), FileError);
}

TEST_F(ComparisonTest, ThePageAndTheJsonShowEveryRun) {
  write_metrics("local", kTwoEpochs);
  write_summary("local", "finished");
  write_summary("sync", "diverged", R"(, "problem": "the loss is <nan>")");
  Comparison comparison = {.model = "<mlp>",
                           .data = "d",
                           .measure = {.target = 0.85},
                           .entries = {{"local", "local"}, {"sync", "sync"}, {"async", "async"}}};
  comparison.look(folder_);
  const std::string page = comparison_html(comparison);
  EXPECT_THAT(page, HasSubstr("&lt;mlp&gt;"));
  EXPECT_THAT(page, HasSubstr("the loss is &lt;nan&gt;"));
  EXPECT_THAT(page, HasSubstr("Test accuracy over time of training"));
  EXPECT_THAT(page, HasSubstr("by 2 workers and 1 server"));
  EXPECT_THAT(page, HasSubstr("Time to 85 % test accuracy"));
  EXPECT_THAT(page, HasSubstr("not reached"));
  EXPECT_THAT(page, Not(HasSubstr("http://")));
  EXPECT_THAT(page, Not(HasSubstr("https://")));
  const Json root = parse_json(comparison_json(comparison));
  EXPECT_EQ(root.at("runs").size(), 3);
  EXPECT_EQ(root.at("runs")[0].at("seconds_to_target"), 3.0);
  EXPECT_EQ(root.at("runs")[0].at("bytes_per_sample"), 15);
  EXPECT_EQ(root.at("runs")[1].at("status"), "diverged");
  EXPECT_TRUE(root.at("runs")[2].at("best").is_null());
  const std::vector<std::vector<std::string>> rows = comparison_rows(comparison);
  ASSERT_EQ(rows.size(), 4);
  EXPECT_THAT(rows[0], testing::ElementsAre("", "best", "time to 85 %", "samples/s", "B/sample", "staleness", "time"));
  EXPECT_THAT(rows[1], testing::ElementsAre("local", "90.00 %", "3.0 s", "40.0k", "15", "–", "3.5 s"));
  EXPECT_EQ(rows[2].back(), "diverged");
  EXPECT_EQ(rows[3].back(), "waiting");
}

}  // namespace
}  // namespace distbelief
