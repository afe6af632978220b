#include "cluster/orphans.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "cluster/child_process.h"
#include "cluster/test_folder.h"

namespace distbelief {
namespace {

/// In a process of its own, whose children nobody else waits for.
template <typename Claim>
int run_apart(const Claim& claim) {
  const pid_t child = ::fork();
  if (child == 0) {
    claim();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(Orphans, ProcessesOfAKilledChildAreWaitedForAndKilledInTheEnd) {
  const ClusterTestFolder folder;
  const std::filesystem::path pid_file = folder.path() / "pid";
  const int status = run_apart([&] {
    adopt_orphans();
    {
      ChildProcess parent({.name = "parent",
                           .argv = {"/bin/sh", "-c", "setsid sleep 1000 & echo $! > " + pid_file.string() + "; wait"},
                           .environment = {"PATH=/usr/bin:/bin"}});
      while (!std::filesystem::exists(pid_file) || std::filesystem::file_size(pid_file) == 0) {
        ::usleep(1000);
      }
    }
    end_orphans(Clock::now() + std::chrono::milliseconds(50));
  });
  EXPECT_EQ(status, 0);
  pid_t orphan = 0;
  std::ifstream(pid_file) >> orphan;
  ASSERT_GT(orphan, 0);
  EXPECT_NE(::kill(orphan, 0), 0);
}

TEST(Orphans, WithoutChildrenThereIsNothingToWaitFor) {
  EXPECT_EQ(run_apart([] { end_orphans(Clock::now() + std::chrono::hours(1)); }), 0);
}

}  // namespace
}  // namespace distbelief
