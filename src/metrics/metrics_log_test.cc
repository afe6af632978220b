#include "metrics/metrics_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <fstream>

#include "base/error.h"
#include "base/file.h"

namespace distbelief {
namespace {

class MetricsLogTest : public testing::Test {
 protected:
  ~MetricsLogTest() override { std::filesystem::remove(path_); }
  void append_raw(const std::string& text) { std::ofstream(path_, std::ios::app | std::ios::binary) << text; }
  const std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("distbelief_metrics_test." + std::to_string(::getpid()));
};

TEST_F(MetricsLogTest, EachRowIsInTheFileAtOnce) {
  MetricsLog log = MetricsLog::create(path_);
  log.append({1, 0.5, 2.25, {{"train_loss", 0.75}, {"rate", NAN}}});
  EXPECT_EQ(read_file(path_), "{\"step\":1,\"epoch\":0.5,\"time\":2.25,\"train_loss\":0.75,\"rate\":null}\n");
}

TEST_F(MetricsLogTest, ReadsBackEveryBit) {
  {
    MetricsLog log = MetricsLog::create(path_);
    log.append({7, 1.0 / 3, 0.1, {{"a\"\n", 1e-300}, {"b", NAN}}});
  }
  const auto rows = read_metrics(path_);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].step, 7);
  EXPECT_EQ(rows[0].epoch, 1.0 / 3);
  EXPECT_EQ(rows[0].time, 0.1);
  EXPECT_EQ(rows[0].value("a\"\n"), 1e-300);
  EXPECT_TRUE(std::isnan(*rows[0].value("b")));
  EXPECT_FALSE(rows[0].value("c"));
}

TEST_F(MetricsLogTest, ResumeForgetsWhatCameAfterItsRowsAndAnUnfinishedLine) {
  {
    MetricsLog log = MetricsLog::create(path_);
    for (int step = 1; step <= 5; ++step) {
      log.append({step, 0, 0, {}});
    }
  }
  append_raw("{\"step\":6,\"ep");
  {
    MetricsLog log = MetricsLog::resume(path_, 3);
    log.append({4, 9, 0, {}});
  }
  const auto rows = read_metrics(path_);
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[2].step, 3);
  EXPECT_EQ(rows[3].epoch, 9);
}

TEST_F(MetricsLogTest, ResumeBeginsAMissingFile) {
  { MetricsLog::resume(path_, 3).append({4, 0, 0, {}}); }
  EXPECT_EQ(read_metrics(path_).size(), 1U);
}

TEST_F(MetricsLogTest, ALineThatIsNoRowIsNamed) {
  append_raw("{\"step\":1}\nnonsense\n");
  try {
    read_metrics(path_);
    FAIL();
  } catch (const FileError& error) {
    EXPECT_EQ(std::string(error.what()), path_.string() + ":2: expected a JSON object with a step and numbers");
  }
}

/// As long as it lives no file of this process grows beyond so many bytes.
class SmallFiles {
 public:
  explicit SmallFiles(std::size_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &limit_), 0);
    rlimit tiny = limit_;
    tiny.rlim_cur = bytes;
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &tiny), 0);
  }
  ~SmallFiles() {
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit_), 0);
    std::signal(SIGXFSZ, handler_);
  }
  SmallFiles(const SmallFiles&) = delete;
  SmallFiles& operator=(const SmallFiles&) = delete;

 private:
  void (*handler_)(int);
  rlimit limit_{};
};

TEST_F(MetricsLogTest, AFullDiskLeavesNoHalfRow) {
  MetricsLog log = MetricsLog::create(path_);
  log.append({1, 0, 0, {}});
  const std::string before = read_file(path_);
  {
    const SmallFiles limited(before.size() + 10);
    EXPECT_THROW(log.append({2, 0, 0, {}}), FileError);
  }
  EXPECT_EQ(read_file(path_), before);
  log.append({2, 0, 0, {}});
  EXPECT_EQ(read_metrics(path_).size(), 2U);
}

TEST_F(MetricsLogTest, ResumeForgetsWhatCameAfterItsRowsOnAFullDiskToo) {
  {
    MetricsLog log = MetricsLog::create(path_);
    for (int step = 1; step <= 5; ++step) {
      log.append({step, 0, 0, {}});
    }
  }
  const SmallFiles limited(10);
  EXPECT_EQ(MetricsLog::resume(path_, 3).rows(), 3);
  EXPECT_EQ(read_metrics(path_).size(), 3U);
}

}  // namespace
}  // namespace distbelief
