#include "cluster/child_process.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "cluster/test_child.h"

namespace distbelief {
namespace {

using testing::HasSubstr;

TEST(ChildProcess, TellsHowItEnded) {
  ChildProcess exits(shell("a", "exit 7"));
  const auto exited = exits.wait(soon());
  ASSERT_TRUE(exited);
  EXPECT_EQ(exited->exit_code, 7);
  EXPECT_EQ(describe(*exited), "exited with code 7");

  ChildProcess dies(shell("b", "kill -9 $$"));
  const auto killed = dies.wait(soon());
  ASSERT_TRUE(killed);
  EXPECT_EQ(killed->signal, 9);
  EXPECT_EQ(describe(*killed), "was killed by signal 9 (SIGKILL)");
  EXPECT_FALSE(killed->ok());
}

TEST(ChildProcess, AppendsItsWordsToItsLog) {
  const ClusterTestFolder folder;
  const auto log = folder.path() / "worker.log";
  for (int i = 0; i < 2; ++i) {
    ChildProcess child(shell("a", "echo out; echo error >&2", log));
    EXPECT_TRUE(child.wait(soon())->ok());
  }
  EXPECT_EQ(read_file(log), "out\nerror\nout\nerror\n");
}

TEST(ChildProcess, HasTheEnvironmentItWasGivenAndNoOther) {
  const ClusterTestFolder folder;
  const auto log = folder.path() / "log";
  ChildProcess child({.name = "a", .argv = {"/usr/bin/env"}, .environment = {"A=1", "B=two"}, .log = log});
  EXPECT_TRUE(child.wait(soon())->ok());
  EXPECT_EQ(read_file(log), "A=1\nB=two\n");
}

TEST(ChildProcess, ReadsItsInputAndSeesItsEndOnlyWithUs) {
  const ClusterTestFolder folder;
  const auto log = folder.path() / "log";
  ProcessSpec spec = shell("a", "read line; echo \"$line\"; cat; echo end", log);
  spec.input = "a secret\n";
  auto child = std::make_unique<ChildProcess>(spec);
  while (read_file(log) != "a secret\n") {
    ASSERT_FALSE(child->wait(Clock::now() + std::chrono::milliseconds(5)));
  }
  child.reset();  // kills
  EXPECT_EQ(read_file(log), "a secret\n");
}

TEST(ChildProcess, InheritsNoOpenFiles) {
  const ClusterTestFolder folder;
  const FileDescriptor leaked(::open("/dev/null", O_RDONLY));  // without O_CLOEXEC
  const auto log = folder.path() / "log";
  ChildProcess child(shell("a", "test ! -e /proc/self/fd/" + std::to_string(leaked.get()), log));
  EXPECT_TRUE(child.wait(soon())->ok());
}

TEST(ChildProcess, SaysWhichProcessCouldNotBeStarted) {
  const auto complaint = [](const ProcessSpec& spec) {
    try {
      const ChildProcess child(spec);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_THAT(complaint({.name = "worker 3", .argv = {"/no/such/program"}}),
              HasSubstr("worker 3: cannot start /no/such/program"));
  EXPECT_THAT(complaint(shell("worker 3", "true", "/no/such/folder/log")), HasSubstr("/no/such/folder/log"));
}

TEST(ChildProcess, IsGoneWithItsGroupWhenDestroyed) {
  const ClusterTestFolder folder;
  LinePipe pipe(folder.path() / "pipe");
  pid_t grandchild = 0;
  FileDescriptor watch;
  {
    const ChildProcess child(shell("a", "trap '' TERM; sleep 1000 & echo $! > $PIPE; wait", {}, &pipe));
    grandchild = std::stoi(pipe.next());
    watch = FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, grandchild, 0)));
    ASSERT_TRUE(static_cast<bool>(watch));
  }
  pollfd wait{watch.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&wait, 1, 60'000), 1);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);  // no child of ours is left, dead or alive
  EXPECT_EQ(errno, ECHILD);
}

TEST(ChildProcess, TakesTheRestOfItsGroupWithItWhenItEnds) {
  const ClusterTestFolder folder;
  LinePipe pipe(folder.path() / "pipe");
  const LinePipe go(folder.path() / "go");
  ChildProcess child(shell("a", "sleep 1000 & echo $! > $PIPE; read word < " + go.path().string(), {}, &pipe));
  const FileDescriptor watch(static_cast<int>(::syscall(SYS_pidfd_open, std::stoi(pipe.next()), 0)));
  ASSERT_TRUE(static_cast<bool>(watch));
  std::ofstream(go.path()) << "go\n";
  EXPECT_TRUE(child.wait(soon())->ok());
  pollfd wait{watch.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&wait, 1, 60'000), 1);
}

TEST(LastLines, AreTheLastOnes) {
  const ClusterTestFolder folder;
  const auto file = folder.path() / "log";
  const auto of = [&](const std::string& text, int lines) {
    std::ofstream(file) << text;
    return last_lines(file, lines);
  };
  EXPECT_EQ(of("a\nb\nc\n", 2), "b\nc\n");
  EXPECT_EQ(of("a\nb\nc", 2), "b\nc\n");
  EXPECT_EQ(of("a\n", 5), "a\n");
  EXPECT_EQ(of("\n\n\n", 2), "\n\n");
  EXPECT_EQ(of("", 5), "");
  EXPECT_EQ(of(fmt::format("{:x>100000}\nlast\n", ""), 5), "last\n");
  EXPECT_EQ(last_lines(folder.path() / "none", 5), "");
}

}  // namespace
}  // namespace distbelief
