#include "metrics/memory_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/file.h"
#include "metrics/machine.h"

namespace distbelief {
namespace {

class ControlGroups : public testing::Test {
 protected:
  ControlGroups() {
    std::string name = (std::filesystem::temp_directory_path() / "distbelief-groups-XXXXXX").string();
    root_ = ::mkdtemp(name.data());
  }
  ~ControlGroups() override { std::filesystem::remove_all(root_); }
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((root_ / file).parent_path());
    write_file_atomically(root_ / file, text);
  }
  std::filesystem::path root_;
};

TEST_F(ControlGroups, TheLeastOfAllAboveCounts) {
  write("a/memory.max", "3000\n");
  write("a/b/memory.max", "max\n");
  EXPECT_EQ(control_group_limit("0::/a/b\n", root_), 3000U);
  write("a/b/memory.max", "2000\n");
  EXPECT_EQ(control_group_limit("0::/a/b\n", root_), 2000U);
  EXPECT_EQ(control_group_limit("0::/\n", root_), 0U);
}

TEST_F(ControlGroups, OfTheFirstVersionToo) {
  write("memory/jobs/memory.limit_in_bytes", "5000\n");
  EXPECT_EQ(control_group_limit("5:cpu,cpuacct:/jobs\n4:memory:/jobs\n", root_), 5000U);
}

TEST_F(ControlGroups, WhatIsNotUnderstoodIsNoLimit) {
  for (const char* text : {"", "\n", "nothing", "0:", "0::", "0::relative", "::", ":::\n:"}) {
    EXPECT_EQ(control_group_limit(text, root_), 0U) << text;
  }
}

TEST(MemoryOfAProcess, IsAShareOfTheMachines) {
  EXPECT_LE(memory_of_a_process(4), this_machine().memory_bytes / 4);
  EXPECT_GE(memory_of_a_process(1), memory_of_a_process(2));
}

}  // namespace
}  // namespace distbelief
