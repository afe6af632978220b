#include "cluster/coordinator.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <thread>

#include "cluster/job_file.h"
#include "cluster/test_job.h"
#include "transport/message_reader.h"
#include "transport/socket/file_descriptor.h"

namespace distbelief {
namespace {

using testing::SizeIs;
using Ms = std::chrono::milliseconds;

FileDescriptor dial(const Address& address) {
  FileDescriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  name.sin_port = htons(address.port);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
  return fd;
}

TEST(Coordinator, SaysInTheRunFolderWhereItIsAsLongAsItLives) {
  TestJob job({.workers = 1});
  const JobFile file = read_job_file(job.folder.path());
  EXPECT_EQ(file.address, job.coordinator->address());
  EXPECT_EQ(file.token, job.coordinator->token());
  EXPECT_EQ(file.token.size(), 32U);
  EXPECT_EQ(file.pid, ::getpid());
  EXPECT_EQ(file.term, 1U);
  EXPECT_EQ(file.started.size(), 20U);
  job.coordinator.reset();
  EXPECT_FALSE(std::filesystem::exists(job_file_path(job.folder.path())));
}

TEST(Coordinator, TellsAnotherAddressThanItListensOn) {
  const ClusterTestFolder folder;
  CoordinatorOptions options;
  options.listen = Address::tcp("0.0.0.0", 0);
  options.advertised_hosts = {"127.0.0.1", "127.0.0.2"};
  options.run_folder = folder.path();
  const Coordinator coordinator(options);
  const JobFile file = read_job_file(folder.path());
  EXPECT_EQ(file.address.host, "127.0.0.1");
  EXPECT_EQ(file.alternatives, std::vector{Address::tcp("127.0.0.2", file.address.port)});
}

TEST(Coordinator, BeginsANewTermEachTime) {
  const ClusterTestFolder folder;
  CoordinatorOptions options;
  options.run_folder = folder.path();
  for (std::uint64_t term = 1; term <= 3; ++term) {
    const Coordinator coordinator(options);
    EXPECT_EQ(read_job_file(folder.path()).term, term);
  }
}

TEST(Coordinator, WorksOverAUnixSocket) {
  const ClusterTestFolder folder;
  const TestJob job({.workers = 1}, Address::unix_path((folder.path() / "control").string()));
  const auto worker = job.join();
  EXPECT_TRUE(worker->wait_for_view(1, soon()));
}

TEST(Coordinator, RunsUntilItsJobHasEnded) {
  const ClusterTestFolder folder;
  CoordinatorOptions options;
  options.rules.workers = 1;
  options.rules.token = "secret";
  options.run_folder = folder.path();
  JobResult result;
  std::mutex mutex;
  std::condition_variable changed;
  bool joined = false;
  options.log = [&](const std::string& line) {
    const std::scoped_lock lock(mutex);
    joined = joined || line.find("joined") != std::string::npos;
    changed.notify_all();
  };
  std::stop_source stop;
  std::jthread thread([&] { result = run_coordinator(options, stop.get_token()); });
  const auto deadline = soon();
  while (!std::filesystem::exists(job_file_path(folder.path())) && Clock::now() < deadline) {
    std::this_thread::yield();
  }
  JoinRequest request;
  request.token = "secret";
  EventRecorder events;
  request.on_event = [&](const MemberEvent& event) { events.add(event); };
  auto member = Member::join(read_job_file(folder.path()).address, request, deadline);
  ASSERT_NE(member.member, nullptr) << member.reason;
  {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_until(lock, deadline, [&] { return joined; }));
  }
  stop.request_stop();
  EXPECT_EQ(events.wait_for<Order>().reason, "the coordinator was told to stop");
  EXPECT_TRUE(member.member->leave(true, "stopped", deadline));
  thread.join();
  EXPECT_TRUE(result.succeeded) << result.reason;
}

/// Enough descriptors for both ends of so many connections in one process.
void allow_descriptors(rlim_t count) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(count, limit.rlim_max));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_GE(limit.rlim_cur, count) << "the system allows no more";
}

/// Whether the other end closes it before the deadline.
bool closes(const FileDescriptor& fd, Clock::time_point deadline) {
  char bytes[256];
  while (Clock::now() < deadline) {
    pollfd wait{fd.get(), POLLIN, 0};
    if (::poll(&wait, 1, 100) > 0 && ::recv(fd.get(), bytes, sizeof bytes, MSG_DONTWAIT) <= 0) {
      return true;
    }
  }
  return false;
}

TEST(Coordinator, SurvivesAThousandStrangersWhileAJobRuns) {
  allow_descriptors(3000);
  const TestJob job({.workers = 2, .heartbeat = Ms(20)}, Address::tcp("127.0.0.1", 0), Ms(500));
  const auto zero = job.join();
  const auto one = job.join();
  EXPECT_THAT(one->wait_for_view(1, soon())->members, SizeIs(2));
  std::vector<FileDescriptor> strangers;
  for (int i = 0; i < 1000; ++i) {
    strangers.push_back(dial(job.coordinator->address()));
    const int fd = strangers.back().get();
    // Some say nothing at all; some close one half and then say nothing; some begin a message and never end it; some
    // are browsers.
    if (i % 4 == 1) {
      EXPECT_EQ(::shutdown(fd, SHUT_WR), 0);
    } else if (i % 4 == 2) {
      const std::string half = encode_message({1, std::string(100, 'x')}).substr(0, 20);
      EXPECT_GT(::send(fd, half.data(), half.size(), MSG_NOSIGNAL), 0);
    } else if (i % 4 == 3) {
      const std::string noise =
          "GET / HTTP/1.1\r\nHost: alpha\r\n\r\n" + std::string(static_cast<std::size_t>(i), '\xFF');
      EXPECT_GT(::send(fd, noise.data(), noise.size(), MSG_NOSIGNAL), 0);
    }
  }
  const auto observer = job.join(Role::observer);  // there is room for those who belong here
  EXPECT_THAT(observer->request_status(soon())->members, SizeIs(2));
  for (const FileDescriptor& stranger : strangers) {
    EXPECT_TRUE(closes(stranger, soon()));
  }
  EXPECT_EQ(zero->view().number, 1U) << "somebody was lost";
  EXPECT_TRUE(zero->leave(true, "done", soon()));
  EXPECT_TRUE(one->leave(true, "done", soon()));
  EXPECT_TRUE(job.coordinator->wait(soon())->succeeded);
}

TEST(Coordinator, KeepsHundredsOfMembers) {
  constexpr int kMembers = 200 / kSlowness;
  const TestJob job({.workers = kMembers});
  std::vector<std::unique_ptr<Member>> members;
  for (int i = 0; i < kMembers; ++i) {
    members.push_back(job.join());
  }
  for (int i = 0; i < kMembers; ++i) {
    const auto view = members[static_cast<std::size_t>(i)]->wait_for_view(1, soon());
    ASSERT_TRUE(view);
    EXPECT_THAT(view->members, SizeIs(kMembers));
    EXPECT_EQ(members[static_cast<std::size_t>(i)]->self().rank, Rank{i});
  }
  const auto observer = job.join(Role::observer);
  EXPECT_THAT(observer->request_status(soon())->members, SizeIs(kMembers));
  for (auto& member : members) {
    EXPECT_TRUE(member->leave(true, "done", soon()));
  }
  EXPECT_TRUE(job.coordinator->wait(soon())->succeeded);
}

}  // namespace
}  // namespace distbelief
