#include "base/process_identity.h"

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
  EXPECT_EQ(look_for(self), ProcessSight::runs);
}

TEST(ProcessIdentity, IsNotFooledByAPidThatWasGivenOutAgain) {
  ProcessIdentity other = identify_this_process();
  ++other.started;
  EXPECT_EQ(look_for(other), ProcessSight::gone);
}

TEST(ProcessIdentity, KnowsNothingOfOtherHosts) {
  ProcessIdentity other = identify_this_process();
  ++other.host;
  other.pid = 1 << 30;
  EXPECT_EQ(look_for(other), ProcessSight::unseen);
  EXPECT_EQ(look_for(ProcessIdentity{}), ProcessSight::unseen);
}

TEST(ProcessIdentity, TravelsAsText) {
  const ProcessIdentity self = identify_this_process();
  EXPECT_EQ(ProcessIdentity::parse(self.text()), self);
  for (const char* other : {"", "7", "7 8", "7 8 0", "7 8 -3", "some words"}) {
    EXPECT_EQ(ProcessIdentity::parse(other), ProcessIdentity{}) << other;
  }
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
  EXPECT_EQ(look_for(process), ProcessSight::gone);
  EXPECT_TRUE(is_gone(child));
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(look_for(process), ProcessSight::gone);
  EXPECT_TRUE(is_gone(child));
  EXPECT_FALSE(is_gone(::getpid()));
}

}  // namespace
}  // namespace distbelief
