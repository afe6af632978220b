#include "cluster/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <fstream>
#include <thread>

#include "base/error.h"
#include "cluster/test_child.h"

namespace distbelief {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using Ms = std::chrono::milliseconds;

// What copies of this program do when they are started with kBodyVariable.

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void say(const std::string& line) { std::ofstream(variable("PIPE")) << line + "\n" << std::flush; }

[[noreturn]] void sleep_with_parent() {
  die_with_parent(std::stoi(variable(kLauncherPidVariable)));
  say(std::to_string(::getpid()));
  for (;;) {
    ::pause();
  }
}

[[noreturn]] void launch_sleepers() {
  Launcher launcher({});
  for (int i = 0; i < 3; ++i) {
    launcher.start(body("sleeper", {"PIPE=" + variable("PIPE")}, {}));
  }
  ::_exit(launcher.run_until(soon()) ? 0 : 1);
}

[[noreturn]] void work() {
  die_with_parent(std::stoi(variable(kLauncherPidVariable)));
  JoinRequest request;
  request.version = "1.0";
  request.configuration = "abc";
  request.token = variable("TOKEN");
  request.host = "alpha";
  request.pid = ::getpid();
  request.launch = std::stoull(variable(kLaunchVariable));
  EventRecorder events;
  request.on_event = [&](const MemberEvent& event) { events.add(event); };
  auto joined = Member::join(Address::parse(variable("ADDRESS")), request, soon());
  if (!joined.member || !joined.member->wait_for_view(1, soon())) {
    ::_exit(1);
  }
  say(std::to_string(::getpid()));
  const auto lost = events.wait_for<MemberLost>();
  say(describe(lost.member) + ": " + lost.reason);
  events.wait_for<Order>();
  joined.member->leave(true, "stopped", soon());
  joined.member.reset();
  ::_exit(0);
}

[[maybe_unused]] const bool kIsABody = [] {
  const std::string body = variable(kBodyVariable);
  if (body == "sleeper") {
    sleep_with_parent();
  } else if (body == "launcher") {
    launch_sleepers();
  } else if (body == "worker") {
    work();
  }
  return false;
}();

int open_files() {
  return static_cast<int>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
}

TEST(Launcher, AHundredStartsAndEndsLeaveNothing) {
  const int files_before = open_files();
  for (int i = 0; i < 100; ++i) {
    Launcher launcher({});
    launcher.start(shell("a", "exit 0"));
    launcher.start(shell("b", "exit 0"));
    ASSERT_TRUE(launcher.run_until(soon()));
    ASSERT_THAT(launcher.result().ended, SizeIs(2));
    ASSERT_FALSE(launcher.result().culprit);
  }
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
  EXPECT_EQ(open_files(), files_before);
}

TEST(Launcher, StopsTheOthersWhenOneDiesAndShowsItsLastLines) {
  const ClusterTestFolder folder;
  Launcher launcher({.log_lines = 2});
  launcher.start(shell("worker 0", "exec sleep 1000"));
  launcher.start(shell("worker 1", "echo one; echo two; echo three; exit 3", folder.path() / "log"));
  ASSERT_TRUE(launcher.run_until(soon()));
  const auto& result = launcher.result();
  ASSERT_THAT(result.ended, SizeIs(2));
  EXPECT_EQ(result.culprit, 0U);
  EXPECT_THAT(result.reason(), HasSubstr("worker 1 (pid "));
  EXPECT_THAT(result.reason(), HasSubstr(") exited with code 3"));
  EXPECT_EQ(result.last_lines, "two\nthree\n");
  EXPECT_EQ(result.ended[1].name, "worker 0");
  EXPECT_TRUE(result.ended[1].told_to_stop);
  EXPECT_EQ(result.ended[1].end.signal, SIGTERM);
}

TEST(Launcher, LetsTheOthersGoOnWhenTold) {
  const ClusterTestFolder folder;
  LinePipe pipe(folder.path() / "pipe");
  Launcher launcher({.on_exit = [&](const ProcessExit& exit) {
    if (exit.name == "worker 1") {
      std::ofstream(pipe.path()) << "go\n";
    }
  }});
  launcher.start(shell("worker 0", "read word < $PIPE; exit 0", {}, &pipe), {}, Launcher::WhenLost::others_go_on);
  launcher.start(shell("worker 1", "kill -9 $$"), {}, Launcher::WhenLost::others_go_on);
  ASSERT_TRUE(launcher.run_until(soon()));
  const auto& result = launcher.result();
  EXPECT_EQ(result.culprit, 0U);
  EXPECT_TRUE(result.ended[1].end.ok());
  EXPECT_FALSE(result.ended[1].told_to_stop);
}

TEST(Launcher, KillsAChildThatIgnoresSigterm) {
  const ClusterTestFolder folder;
  LinePipe pipe(folder.path() / "pipe");
  Launcher launcher({.kill_after = Ms(50)});
  launcher.start(shell("stubborn", "trap '' TERM; echo ready > $PIPE; while :; do sleep 1; done", {}, &pipe));
  EXPECT_FALSE(launcher.run_until(Clock::now()));
  EXPECT_EQ(pipe.next(), "ready");
  launcher.stop();
  ASSERT_TRUE(launcher.run_until(soon()));
  EXPECT_EQ(launcher.result().ended[0].end.signal, SIGKILL);
  EXPECT_TRUE(launcher.result().ended[0].told_to_stop);
  EXPECT_FALSE(launcher.result().culprit);
}

TEST(Launcher, AlsoStopsAChildThatStandsStill) {
  Launcher launcher({.kill_after = std::chrono::minutes(10)});
  launcher.start(shell("stopped", "kill -STOP $$; exec sleep 1000"));
  launcher.stop();
  ASSERT_TRUE(launcher.run_until(soon()));
  EXPECT_EQ(launcher.result().ended[0].end.signal, SIGTERM);
}

TEST(Launcher, StartsADeadProcessAgainAsOftenAsAllowed) {
  std::vector<ProcessExit> exits;
  Launcher launcher({.host = "alpha", .on_exit = [&](const ProcessExit& exit) { exits.push_back(exit); }});
  EXPECT_EQ(launcher.start(shell("worker 0", "exit $DISTBELIEF_LAUNCH"), {.times = 2}), 1U);
  ASSERT_TRUE(launcher.run_until(soon()));
  ASSERT_THAT(exits, SizeIs(3));
  for (int i = 0; i < 3; ++i) {
    const ProcessExit& exit = exits[static_cast<std::size_t>(i)];
    EXPECT_EQ(exit.exit_code, i + 1);  // each start has a number of its own
    EXPECT_EQ(exit.launch, static_cast<std::uint64_t>(i) + 1);
    EXPECT_EQ(exit.starts_again, i < 2);
    EXPECT_EQ(exit.host, "alpha");
    EXPECT_EQ(exit.name, "worker 0");
  }
  EXPECT_EQ(launcher.result().ended[0].restarts, 2);
}

TEST(Launcher, CanBeStoppedFromAnotherThread) {
  Launcher launcher({});
  launcher.start(shell("a", "exec sleep 1000"));
  std::jthread thread([&] { launcher.stop(); });
  ASSERT_TRUE(launcher.run_until(soon()));
  EXPECT_FALSE(launcher.result().culprit);
}

TEST(Launcher, KillsWhatIsLeftWhenDestroyed) {
  FileDescriptor watch;
  {
    const ClusterTestFolder folder;
    LinePipe pipe(folder.path() / "pipe");
    Launcher launcher({});
    launcher.start(shell("a", "trap '' TERM; echo $$ > $PIPE; while :; do sleep 1; done", {}, &pipe));
    watch = FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, std::stoi(pipe.next()), 0)));
  }
  pollfd wait{watch.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&wait, 1, 0), 1);
}

TEST(Launcher, ItsChildrenEndWhenItIsKilled) {
  const ClusterTestFolder folder;
  LinePipe pipe(folder.path() / "pipe");
  ChildProcess launcher(body("launcher", {"PIPE=" + pipe.path().string()}, folder.path() / "log"));
  std::vector<pollfd> waits;
  std::vector<FileDescriptor> watches;
  for (int i = 0; i < 3; ++i) {
    watches.emplace_back(static_cast<int>(::syscall(SYS_pidfd_open, std::stoi(pipe.next()), 0)));
    ASSERT_TRUE(static_cast<bool>(watches.back()));
  }
  ::kill(launcher.pid(), SIGKILL);
  for (const FileDescriptor& watch : watches) {
    pollfd wait{watch.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&wait, 1, 60'000), 1);
  }
}

TEST(Launcher, TellsTheCoordinatorWhoseMembersLearnOfAKillAtOnce) {
  const ClusterTestFolder folder;
  LinePipe pipe(folder.path() / "pipe");
  const TestJob job({.workers = 2, .has_launcher = true, .reconnect_limit = std::chrono::minutes(10)});
  EventRecorder events;
  const auto member = job.join(Role::launcher, &events);
  Launcher launcher({.host = "alpha", .on_exit = [&](const ProcessExit& exit) { member->report_exit(exit); }});
  for (int i = 0; i < 2; ++i) {
    launcher.start(body("worker",
                        {"PIPE=" + pipe.path().string(), "TOKEN=" + job.coordinator->token(),
                         "ADDRESS=" + job.coordinator->address().text()},
                        folder.path() / "log"),
                   {}, Launcher::WhenLost::others_go_on);
  }
  const pid_t first = std::stoi(pipe.next());
  const pid_t second = std::stoi(pipe.next());
  ::kill(first, SIGKILL);
  const auto lost_at = Clock::now() + std::chrono::minutes(1);
  while (launcher.running() == 2 && Clock::now() < lost_at) {
    EXPECT_FALSE(launcher.run_until(Clock::now() + Ms(10)));
  }
  const auto lost = events.wait_for<MemberLost>();
  EXPECT_EQ(lost.member.pid, first);
  EXPECT_EQ(lost.reason, "was killed by signal 9 (SIGKILL)");
  EXPECT_EQ(pipe.next(), describe(lost.member) + ": " + lost.reason);  // the survivor says the same
  member->order({Order::What::stop, "enough"});
  ASSERT_TRUE(launcher.run_until(soon()));
  EXPECT_EQ(launcher.result().ended[1].pid, second);
  EXPECT_TRUE(launcher.result().ended[1].end.ok()) << last_lines(folder.path() / "log", 100);
  EXPECT_EQ(events.wait_for<JobEnded>().reason, "enough");
}

}  // namespace
}  // namespace distbelief
