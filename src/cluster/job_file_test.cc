#include "cluster/job_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "base/error.h"
#include "cluster/store.h"
#include "cluster/test_folder.h"

namespace distbelief {
namespace {

using testing::HasSubstr;

std::string complaint(const std::filesystem::path& folder) {
  try {
    read_job_file(folder);
  } catch (const FileError& error) {
    return error.what();
  }
  return "none";
}

TEST(JobFile, ReadsBackWhatWasWritten) {
  const ClusterTestFolder folder;
  const JobFile job{.address = Address::tcp("127.0.0.1", 4711),
                    .alternatives = {Address::tcp("10.0.0.7", 4711), Address::tcp("fe80::7", 4711)},
                    .token = make_token(),
                    .pid = 99,
                    .term = 3,
                    .started = "2026-01-31T12:00:00Z"};
  write_job_file(folder.path(), job);
  EXPECT_EQ(read_job_file(folder.path()), job);
  EXPECT_EQ(job.addresses().size(), 3U);
}

TEST(JobFile, IsForItsOwnerOnly) {
  const ClusterTestFolder folder;
  std::ofstream(folder.path() / ".job.json.partial") << "left by a crash, readable by all";
  write_job_file(folder.path(), {.address = Address::tcp("127.0.0.1", 1), .token = "secret"});
  const auto mode = std::filesystem::status(job_file_path(folder.path())).permissions();
  EXPECT_EQ(static_cast<unsigned>(mode), 0600U);
}

TEST(JobFile, NamesTheFileAndWhatIsWrong) {
  const ClusterTestFolder folder;
  EXPECT_THAT(complaint(folder.path()), HasSubstr("job.json: not there: no job runs in this folder"));
  const auto write = [&](const std::string& text) { std::ofstream(job_file_path(folder.path())) << text; };
  write("{");
  EXPECT_THAT(complaint(folder.path()), HasSubstr("job.json: "));
  write("{}");
  EXPECT_THAT(complaint(folder.path()), HasSubstr("'address'"));
  write(R"({"address": "nowhere", "token": "", "pid": 1, "term": 1, "started": ""})");
  EXPECT_THAT(complaint(folder.path()), HasSubstr("nowhere"));
  write(R"({"address": "tcp:a:1", "token": 7, "pid": 1, "term": 1, "started": ""})");
  EXPECT_NE(complaint(folder.path()), "none");
}

TEST(JobFile, TokensAreLongAndNeverTheSame) {
  std::set<std::string> tokens;
  for (int i = 0; i < 100; ++i) {
    tokens.insert(make_token());
  }
  EXPECT_EQ(tokens.size(), 100U);
  EXPECT_EQ(tokens.begin()->size(), 32U);
}

TEST(FileStore, GivesEachTermOnce) {
  const ClusterTestFolder folder;
  FileStore store(folder.path());
  EXPECT_EQ(store.begin_term(), 1U);
  EXPECT_EQ(store.begin_term(), 2U);
  EXPECT_EQ(store.begin_term(), 3U);
  std::ofstream(folder.path() / "coordinator.json") << "?";
  EXPECT_THROW(store.begin_term(), FileError);
}

}  // namespace
}  // namespace distbelief
