#include "cluster/process_identity.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace distbelief {
namespace {

TEST(ProcessIdentity, IsThatOfAProcessAsLongAsItRuns) {
  const std::string own = process_identity(::getpid());
  EXPECT_GT(own.size(), 36U);  // the machine's start takes as many
  EXPECT_EQ(own, process_identity(::getpid()));
  EXPECT_EQ(process_identity(0), "");
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(0);
  }
  siginfo_t ended = {};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(process_identity(child), "") << "ended, and not reaped";
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(process_identity(child), "");
}

}  // namespace
}  // namespace distbelief
