#include "transport/mpi/process_identity.h"

#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace distbelief {
namespace {

TEST(ProcessIdentity, FindsThisProcessAlive) {
  const ProcessIdentity self = identify_this_process();
  EXPECT_NE(self.host, 0U);
  EXPECT_EQ(self.pid, ::getpid());
  EXPECT_EQ(self, identify_this_process());
  EXPECT_FALSE(is_certainly_dead(self));
}

TEST(ProcessIdentity, IsNotFooledByAPidThatWasGivenOutAgain) {
  ProcessIdentity other = identify_this_process();
  ++other.started;
  EXPECT_TRUE(is_certainly_dead(other));
}

TEST(ProcessIdentity, KnowsNothingOfOtherHosts) {
  ProcessIdentity other = identify_this_process();
  ++other.host;
  other.pid = 1 << 30;
  EXPECT_FALSE(is_certainly_dead(other));
  EXPECT_FALSE(is_certainly_dead(ProcessIdentity{}));
}

TEST(ProcessIdentity, CountsAZombieAsDead) {
  pid_t child = 0;
  char program[] = "/bin/true";
  char* arguments[] = {program, nullptr};
  ASSERT_EQ(::posix_spawn(&child, program, nullptr, nullptr, arguments, environ), 0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);  // ended, and not yet reaped
  ProcessIdentity process = identify_this_process();
  process.pid = child;
  EXPECT_TRUE(is_certainly_dead(process));
  EXPECT_TRUE(is_gone(child));
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(is_certainly_dead(process));
  EXPECT_TRUE(is_gone(child));
  EXPECT_FALSE(is_gone(::getpid()));
}

}  // namespace
}  // namespace distbelief
