#include "train/process_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"

namespace distbelief {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::MatchesRegex;

struct ProcessLogTest : testing::Test {
  ProcessLogTest() : folder(std::filesystem::temp_directory_path() / ("process_log." + std::to_string(::getpid()))) {}
  ~ProcessLogTest() override { std::filesystem::remove_all(folder); }
  std::filesystem::path folder;
};

TEST_F(ProcessLogTest, LinesHaveTheTimeInMicroseconds) {
  std::filesystem::create_directories(folder);
  const std::filesystem::path file = process_log_path(folder, "worker", 3);
  EXPECT_EQ(file, folder / "logs" / "worker-3.log");
  ProcessLog(file).line("joined");
  EXPECT_THAT(read_file(file), MatchesRegex("[0-9]+-..-..T..:..:..[.][0-9]+Z joined\n"));
  EXPECT_EQ(read_file(file).size(), std::string("2026-01-31T12:00:00.000000Z joined\n").size());
}

TEST_F(ProcessLogTest, TheLastWordsAreShortAndIndented) {
  std::filesystem::create_directories(folder);
  write_file_atomically(folder / "log", "1\n2\n3\n4\n5\n6\nterminate called");
  EXPECT_THAT(last_words(folder / "log"), ElementsAre("    3", "    4", "    5", "    6", "    terminate called"));
  EXPECT_THAT(last_words(folder / "none"), IsEmpty());
}

TEST_F(ProcessLogTest, TheLastWordsAreNotWhatAProcessWritesDownAsItGoes) {
  const ProcessLog log(folder / "log");
  log.line("epoch 3 ended");
  log.line("ends: lost");
  write_file_atomically(folder / "other", read_file(folder / "log") + "terminate called\n");
  const std::vector<std::string> words = last_words(folder / "other");
  ASSERT_EQ(words.size(), 2U);
  EXPECT_THAT(words[0], MatchesRegex("    [0-9]+-.*Z ends: lost"));
  EXPECT_EQ(words[1], "    terminate called");
}

TEST_F(ProcessLogTest, AHostThatDoesNotSeeTheRunMakesNoFolder) {
  ProcessLog(process_log_path(folder, "worker", 3)).line("unheard");
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST_F(ProcessLogTest, WhatCannotBeWrittenIsNotInTheWay) { ProcessLog("/proc/none/log").line("unheard"); }

}  // namespace
}  // namespace distbelief
