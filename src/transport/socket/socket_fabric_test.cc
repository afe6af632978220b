#include "transport/socket/socket_fabric.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <thread>

#include "base/test_deadline.h"
#include "transport/fabric_contract.h"
#include "transport/frame.h"
#include "transport/socket/endpoint.h"
#include "transport/socket/stream.h"
#include "transport/temporary_folder.h"

namespace distbelief {
namespace {

using testing::HasSubstr;

SocketFabricOptions job_options() { return {.token = "secret of the test", .job = "test", .view = 1}; }

/// The listeners of a job, before its ranks know each other.
struct Job {
  explicit Job(std::vector<Address> where) {
    for (const Address& address : where) {
      listeners.push_back(std::make_unique<SocketListener>(address));
      addresses.push_back(listeners.back()->address());
    }
  }

  std::future<SocketFabricResult> connect(int rank, SocketFabricOptions options = job_options(),
                                          Clock::time_point deadline = soon(),
                                          const std::function<bool(Rank)>& given_up = {}) {
    return std::async(std::launch::async, [this, rank, options, deadline, given_up] {
      return connect_socket_fabric(Rank{rank}, addresses, *listeners[static_cast<std::size_t>(rank)], options, deadline,
                                   given_up);
    });
  }

  std::vector<std::unique_ptr<Fabric>> connect_all(const SocketFabricOptions& options = job_options()) {
    std::vector<std::future<SocketFabricResult>> results;
    for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
      results.push_back(connect(static_cast<int>(rank), options));
    }
    std::vector<std::unique_ptr<Fabric>> fabrics;
    for (auto& result : results) {
      SocketFabricResult connected = result.get();
      EXPECT_NE(connected.fabric, nullptr) << connected.reason;
      fabrics.push_back(std::move(connected.fabric));
    }
    return fabrics;
  }

  std::vector<std::unique_ptr<SocketListener>> listeners;
  std::vector<Address> addresses;
};

std::vector<Address> tcp_addresses(int ranks) {
  return {static_cast<std::size_t>(ranks), Address::tcp("127.0.0.1", 0)};
}

std::vector<Address> unix_addresses(int ranks, const TemporaryFolder& folder) {
  std::vector<Address> addresses;
  for (int rank = 0; rank < ranks; ++rank) {
    addresses.push_back(Address::unix_path(folder.path() / std::to_string(rank)));
  }
  return addresses;
}

std::vector<std::unique_ptr<Fabric>> make_tcp_fabrics(int ranks) { return Job(tcp_addresses(ranks)).connect_all(); }

std::vector<std::unique_ptr<Fabric>> make_unix_fabrics(int ranks) {
  const TemporaryFolder folder;
  return Job(unix_addresses(ranks, folder)).connect_all();
}

DISTBELIEF_INSTANTIATE_FABRIC_CONTRACT(Tcp, make_tcp_fabrics)
DISTBELIEF_INSTANTIATE_FABRIC_CONTRACT(Unix, make_unix_fabrics)

void send_raw(const Address& address, std::string bytes) {
  OpenedConnection opened = open_connection(address, soon());
  ASSERT_TRUE(opened.fd) << opened.reason;
  const auto stream = make_plain_stream(std::move(opened.fd));
  const iovec part = {bytes.data(), bytes.size()};
  ASSERT_EQ(stream->write(std::span(&part, 1)).bytes, bytes.size());
}

TEST(SocketFabric, StrangersHarmNothing) {
  Job job(tcp_addresses(2));
  std::vector<OpenedConnection> silent;
  for (int i = 0; i < 20; ++i) {
    silent.push_back(open_connection(job.addresses[0], soon()));
  }
  send_raw(job.addresses[0], "GET / HTTP/1.1\r\n\r\n and more than a header would have");
  send_raw(job.addresses[0], encode_frame({.kind = 1, .epoch = 1}, {}));                              // an empty hello
  send_raw(job.addresses[0], encode_frame({.kind = 1, .epoch = 1}, std::vector<std::byte>(1000)));    // a bad one
  send_raw(job.addresses[0], encode_frame({.kind = 4, .epoch = 1}, std::vector<std::byte>(10)));      // no hello
  send_raw(job.addresses[0], encode_frame({.kind = 1, .epoch = 1}, std::vector<std::byte>(10'000)));  // too long
  const auto fabrics = job.connect_all();
  Transfer send;
  Transfer receive;
  fabrics[0]->send(send, Rank{1}, {1, 1}, {});
  fabrics[1]->receive(receive, Rank{0}, {1, 1}, {});
  EXPECT_TRUE(fabrics[0]->wait(send, soon()).ok());
  EXPECT_TRUE(fabrics[1]->wait(receive, soon()).ok());
}

TEST(SocketFabric, RefusesWhoDoesNotBelong) {
  Job job(tcp_addresses(2));
  auto first = job.connect(0);
  const auto reason_of = [&](auto change) {
    SocketFabricOptions options = job_options();
    change(options);
    return job.connect(1, options).get().reason;
  };
  const std::string name = fmt::format("rank 0 ({}): refused this process, because it ", job.addresses[0].text());
  EXPECT_EQ(reason_of([](auto& options) { options.token = "guess"; }), name + "does not have the job's token");
  EXPECT_EQ(reason_of([](auto& options) { options.token = ""; }), name + "does not have the job's token");
  EXPECT_EQ(reason_of([](auto& options) { options.job = "other"; }), name + "belongs to job 'other', not 'test'");
  EXPECT_EQ(reason_of([](auto& options) { options.view = 0; }), name + "is in view 0, not 1");
  EXPECT_EQ(reason_of([](auto&) {}), "");
  EXPECT_NE(first.get().fabric, nullptr);
}

TEST(SocketFabric, WaitsForAPeerThatIsStillInAnEarlierView) {
  Job job(tcp_addresses(2));
  SocketFabricOptions next = job_options();
  next.view = 2;
  auto ahead = job.connect(1, next);
  auto behind = job.connect(0, job_options(), Clock::now() + std::chrono::milliseconds(50));
  EXPECT_EQ(behind.get().fabric, nullptr);
  auto caught_up = job.connect(0, next);
  EXPECT_NE(ahead.get().fabric, nullptr);
  EXPECT_NE(caught_up.get().fabric, nullptr);
}

TEST(SocketFabric, NamesWhoCannotBeReached) {
  Job job(tcp_addresses(3));
  job.listeners[0].reset();
  const SocketFabricResult dead = job.connect(1).get();
  EXPECT_EQ(dead.fabric, nullptr);
  EXPECT_EQ(dead.culprit, Rank{0});
  EXPECT_EQ(dead.reason, fmt::format("rank 0 ({}): Connection refused", job.addresses[0].text()));

  Job silent(tcp_addresses(2));
  const SocketFabricResult late = silent.connect(0, job_options(), Clock::now()).get();
  EXPECT_EQ(late.culprit, Rank{1});
  EXPECT_THAT(late.reason, HasSubstr("did not connect in time"));
  const SocketFabricResult unanswered = silent.connect(1, job_options(), Clock::now()).get();
  EXPECT_EQ(unanswered.culprit, Rank{0});
  EXPECT_THAT(unanswered.reason, HasSubstr("did not answer in time"));
}

TEST(SocketFabric, WhoIsGivenUpWhileTheyConnectHasNoLink) {
  Job job(tcp_addresses(4));
  job.listeners[0].reset();  // it is dialled in vain, and rank 3 never dials
  std::atomic<bool> known = false;
  const auto given_up = [&](Rank rank) { return known && (rank == Rank{0} || rank == Rank{3}); };
  auto first = job.connect(1, job_options(), soon(), given_up);
  auto second = job.connect(2, job_options(), soon(), given_up);
  EXPECT_EQ(first.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout) << "the dead are waited for";
  known = true;
  const SocketFabricResult one = first.get();
  const SocketFabricResult two = second.get();
  ASSERT_NE(one.fabric, nullptr) << one.reason;
  ASSERT_NE(two.fabric, nullptr) << two.reason;
  EXPECT_EQ(one.fabric->size(), 4);
  Transfer send;
  Transfer receive;
  one.fabric->send(send, Rank{2}, {1, 1}, {});
  two.fabric->receive(receive, Rank{1}, {1, 1}, {});
  EXPECT_TRUE(one.fabric->wait(send, soon()).ok());
  EXPECT_TRUE(two.fabric->wait(receive, soon()).ok());
  one.fabric->receive(receive, Rank{0}, {1, 1}, {});
  EXPECT_EQ(one.fabric->wait(receive, soon()).kind, Outcome::Kind::peer_lost);
  one.fabric->lose(Rank{3}, "is dead");
  one.fabric->send(send, Rank{3}, {1, 1}, {});
  EXPECT_EQ(one.fabric->wait(send, soon()).kind, Outcome::Kind::peer_lost);
}

TEST(SocketFabric, WhatIsNotPostedWaitsOnceTheBoundIsReached) {
  Job job(tcp_addresses(2));
  SocketFabricOptions options = job_options();
  options.most_early = 1000;
  auto fabrics = job.connect_all(options);
  constexpr std::size_t kBytes = 50'000'000;  // more than the system's buffers
  const fabric_contract::Bytes large(kBytes, std::byte{7});
  Transfer send;
  fabrics[0]->send(send, Rank{1}, {1, 1}, large);
  Transfer other;
  fabrics[1]->receive(other, Rank{0}, {1, 2}, {});
  EXPECT_EQ(fabrics[1]->wait(other, Clock::now() + std::chrono::milliseconds(20)).kind, Outcome::Kind::timed_out);
  EXPECT_FALSE(fabrics[0]->progress(send));
  fabric_contract::Bytes came(kBytes);
  Transfer receive;
  fabrics[1]->receive(receive, Rank{0}, {1, 1}, came);
  std::jthread sender([&] { EXPECT_TRUE(fabrics[0]->wait(send, soon()).ok()); });
  EXPECT_TRUE(fabrics[1]->wait(receive, soon()).ok());
  EXPECT_TRUE(came == large);
}

TEST(SocketFabric, WhatCameBeforeThePeerEndedCanStillBeReceived) {
  auto fabrics = make_tcp_fabrics(2);
  const fabric_contract::Bytes sent(1000, std::byte{7});
  Transfer send;
  fabrics[0]->send(send, Rank{1}, {1, 1}, sent);
  EXPECT_TRUE(fabrics[0]->wait(send, soon()).ok());
  fabrics[0].reset();
  fabric_contract::Bytes came(1000);
  Transfer never;
  Transfer receive;
  fabrics[1]->receive(never, Rank{0}, {1, 2}, {});
  const Outcome outcome = fabrics[1]->wait(never, soon());
  EXPECT_EQ(outcome.kind, Outcome::Kind::peer_lost);
  EXPECT_EQ(outcome.reason, "closed the connection");
  fabrics[1]->receive(receive, Rank{0}, {1, 1}, came);
  EXPECT_TRUE(fabrics[1]->wait(receive, soon()).ok());
  EXPECT_EQ(came, sent);
}

}  // namespace
}  // namespace distbelief
