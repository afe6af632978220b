#include "transport/socket/message_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/test_deadline.h"
#include "transport/message_reader.h"
#include "transport/socket/endpoint.h"
#include "transport/socket/message_client.h"
#include "transport/socket/socket_listener.h"
#include "transport/socket/stream.h"
#include "transport/temporary_folder.h"

namespace distbelief {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Received = MessageClient::Received;

/// Records what happened, and answers as the test wants. Counters are guarded by a mutex, so that tests can wait.
class Recorder : public MessageServer::Handler {
 public:
  void opened(ConnectionId id, const std::string& peer) override {
    if (on_open) {
      on_open(id);
    }
    change([&] {
      open.push_back(id);
      last_peer = peer;
    });
  }
  void message(ConnectionId id, Message message) override {
    if (answer) {
      answer(id, message);
    }
    change([&] { messages.push_back(std::move(message)); });
  }
  void closed(ConnectionId id, const std::string& reason) override {
    change([&] {
      std::erase(open, id);
      reasons.push_back(reason);
    });
  }
  void tick(Clock::time_point /*now*/) override {
    change([&] { ++ticks; });
  }

  /// Waits until `condition` holds. False: it did not come to that.
  bool eventually(const std::function<bool()>& condition) {
    std::unique_lock lock(mutex);
    return changed.wait_until(lock, soon(), condition);
  }

  /// Waits until the server's thread has begun something new.
  bool sees_a_tick() {
    std::unique_lock lock(mutex);
    return changed.wait_until(lock, soon(), [this, before = ticks] { return ticks > before; });
  }

  std::vector<ConnectionId> open_now() { return copy_of(open); }
  std::vector<Message> messages_so_far() { return copy_of(messages); }
  std::vector<std::string> reasons_so_far() { return copy_of(reasons); }

  std::function<void(ConnectionId)> on_open;                 // like answer
  std::function<void(ConnectionId, const Message&)> answer;  // on the server's thread; set before anyone connects
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<ConnectionId> open;  // this and all below guarded by mutex
  std::string last_peer;
  std::vector<Message> messages;
  std::vector<std::string> reasons;
  int ticks = 0;

 private:
  template <typename T>
  T copy_of(const T& guarded) {
    const std::scoped_lock lock(mutex);
    return guarded;
  }
  void change(const std::function<void()>& what) {
    const std::scoped_lock lock(mutex);
    what();
    changed.notify_all();
  }
};

std::unique_ptr<MessageClient> connected(const Address& address) {
  MessageClient::Connected result = MessageClient::connect(address, soon());
  EXPECT_NE(result.client, nullptr) << result.reason;
  return std::move(result.client);
}

/// A connection that can send anything.
class RawPeer {
 public:
  explicit RawPeer(const Address& address) : opened_(open_connection(address, soon())), stream_(make_stream()) {}

  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const iovec part = {const_cast<char*>(bytes.data()), bytes.size()};
      const Moved moved = stream_->write(std::span(&part, 1));
      if (moved.state == Moved::State::closed) {
        return false;
      }
      if (moved.state == Moved::State::moved) {
        bytes.remove_prefix(moved.bytes);
      } else if (!wait_for_events(stream_->fd(), POLLOUT, soon())) {
        return false;
      }
    }
    return true;
  }

  /// Reads until the other end closes. False: it did not.
  bool sees_the_end() {
    for (;;) {
      char scratch[4096];
      const iovec part = {scratch, sizeof(scratch)};
      const Moved moved = stream_->read(std::span(&part, 1));
      if (moved.state == Moved::State::closed) {
        return true;
      }
      if (moved.state != Moved::State::moved && !wait_for_events(stream_->fd(), POLLIN, soon())) {
        return false;
      }
    }
  }

 private:
  std::unique_ptr<Stream> make_stream() {
    EXPECT_TRUE(opened_.fd) << opened_.reason;
    return make_plain_stream(std::move(opened_.fd));
  }
  OpenedConnection opened_;
  std::unique_ptr<Stream> stream_;
};

/// Every claim holds on both kinds of sockets.
class MessageServerTest : public testing::TestWithParam<Address::Kind> {
 protected:
  Address where() const {
    return GetParam() == Address::Kind::tcp ? Address::tcp("127.0.0.1", 0)
                                            : Address::unix_path(folder.path() / "socket");
  }
  TemporaryFolder folder;
  Recorder handler;
};

INSTANTIATE_TEST_SUITE_P(Sockets, MessageServerTest, testing::Values(Address::Kind::tcp, Address::Kind::unix_path),
                         [](const auto& kind) { return kind.param == Address::Kind::tcp ? "tcp" : "unix"; });

TEST_P(MessageServerTest, MessagesArriveBothWaysInOrder) {
  MessageServer* own = nullptr;
  handler.answer = [&](ConnectionId id, const Message& message) { own->send(id, message); };
  MessageServer server(where(), handler, {.limits = {.longest_before_trust = 1 << 20}});
  own = &server;
  const auto client = connected(server.address());
  std::vector<Message> sent = {{1, ""}, {2, "x"}, {3, std::string(1 << 20, 'y')}};
  for (std::uint16_t i = 0; i < 200; ++i) {
    sent.push_back({i, std::to_string(i)});
  }
  for (const Message& message : sent) {
    ASSERT_TRUE(client->send(message));
  }
  for (const Message& message : sent) {
    const Received received = client->receive(soon());
    ASSERT_EQ(received.kind, Received::Kind::message) << received.reason;
    EXPECT_EQ(received.message, message);
  }
}

TEST_P(MessageServerTest, ReceiveReturnsAtItsDeadline) {
  MessageServer server(where(), handler);
  const auto client = connected(server.address());
  EXPECT_EQ(client->receive(Clock::now()).kind, Received::Kind::timed_out);
}

TEST_P(MessageServerTest, CloseFromAnotherThreadWakesReceive) {
  MessageServer server(where(), handler);
  const auto client = connected(server.address());
  std::jthread closer([&] { client->close(); });
  const Received received = client->receive(soon());
  EXPECT_EQ(received.kind, Received::Kind::closed);
  EXPECT_EQ(received.reason, "closed by this process");
  closer.join();
  EXPECT_FALSE(client->send({1, "too late"}));
  EXPECT_EQ(client->receive(soon()).reason, "closed by this process");
}

TEST_P(MessageServerTest, WhatWasSentBeforeTheClientEndedArrives) {
  MessageServer server(where(), handler);
  EXPECT_TRUE(connected(server.address())->send({7, "farewell"}));
  ASSERT_TRUE(handler.eventually([&] { return handler.reasons.size() == 1; }));
  EXPECT_THAT(handler.messages_so_far(), testing::ElementsAre(Message{7, "farewell"}));
  EXPECT_EQ(handler.reasons_so_far()[0], "closed the connection");
}

TEST_P(MessageServerTest, ARefusalArrivesBeforeTheEnd) {
  MessageServer* own = nullptr;
  handler.answer = [&](ConnectionId id, const Message&) {
    own->send(id, {9, "refused: wrong token"});
    own->close(id, "had a wrong token");
    own->send(id, {9, "never sent"});
  };
  MessageServer server(where(), handler);
  own = &server;
  const auto client = connected(server.address());
  ASSERT_TRUE(client->send({1, "join"}));
  (void)client->send({2, "what the server does not read any more"});
  EXPECT_EQ(client->receive(soon()).message.body, "refused: wrong token");
  const Received end = client->receive(soon());
  EXPECT_EQ(end.kind, Received::Kind::closed);
  EXPECT_EQ(end.reason, "closed the connection");
  ASSERT_TRUE(handler.eventually([&] { return handler.reasons.size() == 1; }));
  EXPECT_EQ(handler.reasons_so_far()[0], "had a wrong token");
}

TEST_P(MessageServerTest, WhatTheServerSentBeforeItEndedArrives) {
  std::unique_ptr<MessageClient> client;
  {
    MessageServer server(where(), handler);
    client = connected(server.address());
    ASSERT_TRUE(handler.eventually([&] { return handler.open.size() == 1; }));
    server.send(handler.open_now()[0], {4, "the job is done"});
  }
  EXPECT_EQ(client->receive(soon()).message.body, "the job is done");
  EXPECT_EQ(client->receive(soon()).kind, Received::Kind::closed);
}

TEST_P(MessageServerTest, GarbageClosesItsConnectionAndNoOther) {
  MessageServer server(where(), handler);
  const auto client = connected(server.address());
  const std::string too_long = encode_frame({.kind = 1}, std::vector<std::byte>(100'000));
  std::string damaged = encode_message({1, "hello"});
  damaged.back() ^= 1;
  RawPeer request(server.address());
  EXPECT_TRUE(request.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  EXPECT_TRUE(request.sees_the_end());
  RawPeer shouter(server.address());
  (void)shouter.send(too_long);
  EXPECT_TRUE(shouter.sees_the_end());
  RawPeer unlucky(server.address());
  EXPECT_TRUE(unlucky.send(damaged));
  EXPECT_TRUE(unlucky.sees_the_end());
  ASSERT_TRUE(handler.eventually([&] { return handler.reasons.size() == 3; }));
  EXPECT_THAT(handler.reasons_so_far(),
              testing::ElementsAre(StartsWith("does not speak this protocol"),
                                   "sent a frame of 100000 bytes, of which at most 65536 are allowed",
                                   "sent a message with a wrong checksum"));
  ASSERT_TRUE(client->send({1, "still here"}));
  EXPECT_TRUE(handler.eventually([&] { return handler.messages.size() == 1; }));
}

TEST_P(MessageServerTest, TrustAllowsLongMessages) {
  MessageServer* own = nullptr;
  handler.answer = [&](ConnectionId id, const Message&) { own->trust(id); };
  MessageServer server(where(), handler);
  own = &server;
  const auto client = connected(server.address());
  ASSERT_TRUE(client->send({1, "token"}));
  ASSERT_TRUE(client->send({2, std::string(1 << 20, 'x')}));
  EXPECT_TRUE(handler.eventually([&] { return handler.messages.size() == 2; }));
}

TEST_P(MessageServerTest, WhoIsNotTrustedInTimeIsClosed) {
  MessageServer* own = nullptr;
  handler.on_open = [&](ConnectionId id) {
    if (id == ConnectionId{1}) {
      own->trust(id);
    }
  };
  using std::chrono::milliseconds;
  MessageServer server(where(), handler, {.limits = {.until_trust = milliseconds(20), .tick = milliseconds(5)}});
  own = &server;
  const auto trusted = connected(server.address());
  ASSERT_TRUE(handler.eventually([&] { return handler.open.size() == 1; }));
  const auto silent = connected(server.address());
  EXPECT_EQ(silent->receive(soon()).kind, Received::Kind::closed);
  ASSERT_TRUE(handler.eventually([&] { return !handler.reasons.empty(); }));
  EXPECT_EQ(handler.reasons_so_far()[0], "did not say who it is in time");
  ASSERT_TRUE(trusted->send({1, "still here"}));
  EXPECT_TRUE(handler.eventually([&] { return handler.messages.size() == 1; }));
}

TEST_P(MessageServerTest, WhoDoesNotReadIsClosedAndHindersNobody) {
  MessageServer server(where(), handler, {.limits = {.most_queued = 1 << 20}});
  RawPeer lazy(server.address());
  ASSERT_TRUE(handler.eventually([&] { return handler.open.size() == 1; }));
  const auto client = connected(server.address());
  ASSERT_TRUE(handler.eventually([&] { return handler.open.size() == 2; }));
  const std::vector<ConnectionId> ids = handler.open_now();
  for (int i = 0; i < 64; ++i) {  // more than the system's own buffers take
    server.send(ids[0], {1, std::string(512 << 10, 'x')});
  }
  server.send(ids[1], {1, "news"});
  EXPECT_EQ(client->receive(soon()).message.body, "news");
  ASSERT_TRUE(handler.eventually([&] { return !handler.reasons.empty(); }));
  EXPECT_THAT(handler.reasons_so_far()[0], StartsWith("reads too slowly"));
}

TEST_P(MessageServerTest, AClientWhoseServerDoesNotReadEndsItself) {
  SocketListener silent(where());  // the system accepts for it
  MessageClient::Connected result =
      MessageClient::connect(silent.address(), soon(), {.tls = {}, .most_queued = 1 << 20});
  ASSERT_NE(result.client, nullptr) << result.reason;
  int taken = 0;
  while (result.client->send({1, std::string(256 << 10, 'x')})) {
    ASSERT_LT(++taken, 1000);
  }
  const Received end = result.client->receive(soon());
  EXPECT_EQ(end.kind, Received::Kind::closed);
  EXPECT_THAT(end.reason, StartsWith("reads too slowly"));
}

TEST_P(MessageServerTest, AClientThatFetchesNothingGetsAllInTheEnd) {
  MessageServer server(where(), handler);
  const auto client = connected(server.address());
  ASSERT_TRUE(handler.eventually([&] { return handler.open.size() == 1; }));
  for (int i = 0; i < 48; ++i) {
    server.send(handler.open_now()[0], {static_cast<std::uint16_t>(i), std::string(1 << 20, 'x')});
  }
  for (int i = 0; i < 48; ++i) {
    const Received received = client->receive(soon());
    ASSERT_EQ(received.kind, Received::Kind::message) << received.reason;
    EXPECT_EQ(received.message.kind, i);
  }
}

TEST_P(MessageServerTest, MakesRoomForNewConnectionsButNotAtTheCostOfTrustedOnes) {
  MessageServer* own = nullptr;
  handler.answer = [&](ConnectionId id, const Message&) { own->trust(id); };
  MessageServer server(where(), handler, {.limits = {.most_connections = 2}});
  own = &server;
  const auto trusted = connected(server.address());
  ASSERT_TRUE(trusted->send({1, "token"}));
  ASSERT_TRUE(handler.eventually([&] { return handler.messages.size() == 1; }));
  const auto silent = connected(server.address());
  ASSERT_TRUE(handler.eventually([&] { return handler.open.size() == 2; }));
  const auto second = connected(server.address());
  EXPECT_EQ(silent->receive(soon()).kind, Received::Kind::closed);
  ASSERT_TRUE(second->send({1, "token"}));
  ASSERT_TRUE(handler.eventually([&] { return handler.messages.size() == 2; }));
  const auto third = connected(server.address());
  EXPECT_EQ(third->receive(soon()).kind, Received::Kind::closed);
  EXPECT_EQ(trusted->receive(Clock::now()).kind, Received::Kind::timed_out);
}

/// Changes how many descriptors the process may have, for as long as it lives.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t most) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit limit = {std::min(most, before_.rlim_max), before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  rlimit before_{};
};

TEST_P(MessageServerTest, SurvivesAThousandConnectionsThatSayNothing) {
  const DescriptorLimit limit(4096);
  MessageServer server(where(), handler);
  std::vector<OpenedConnection> silent;
  for (int i = 0; i < 1000; ++i) {
    silent.push_back(open_connection(server.address(), soon()));
    ASSERT_TRUE(silent.back().fd) << i << ": " << silent.back().reason;
  }
  const auto client = connected(server.address());
  ASSERT_TRUE(client->send({1, "hello"}));
  EXPECT_TRUE(handler.eventually([&] { return handler.messages.size() == 1; }));
}

TEST_P(MessageServerTest, WithoutDescriptorsItWaitsAndThenGoesOn) {
  MessageServer server(where(), handler);
  const auto client = connected(server.address());
  ASSERT_TRUE(handler.eventually([&] { return handler.open.size() == 1; }));
  ASSERT_TRUE(handler.sees_a_tick());  // so it is not inside accept() any more, which takes a descriptor for a moment
  OpenedConnection waiting;
  {
    int highest = 0;
    {
      const FileDescriptor next(::dup(STDERR_FILENO));
      highest = next.get();
    }
    // One more for the dialling end, none for the accepting one.
    const DescriptorLimit limit(static_cast<rlim_t>(highest) + 1);
    waiting = open_connection(server.address(), soon());
    ASSERT_TRUE(waiting.fd) << waiting.reason;
    ASSERT_TRUE(handler.sees_a_tick());
    ASSERT_TRUE(handler.sees_a_tick());
    ASSERT_TRUE(client->send({1, "work goes on"}));
    ASSERT_TRUE(handler.eventually([&] { return handler.messages.size() == 1; }));
    EXPECT_EQ(handler.open_now().size(), 1U);
  }
  EXPECT_TRUE(handler.eventually([&] { return handler.open.size() == 2; }));
}

TEST_P(MessageServerTest, NobodyListeningIsAValueWithAReason) {
  Address address;
  { address = MessageServer(where(), handler).address(); }
  const MessageClient::Connected result = MessageClient::connect(address, soon());
  EXPECT_EQ(result.client, nullptr);
  EXPECT_THAT(result.reason, StartsWith(address.text() + ": "));
}

TEST_P(MessageServerTest, AnAddressInUseIsRefused) {
  const MessageServer server(where(), handler);
  try {
    const MessageServer second(server.address(), handler);
    ADD_FAILURE() << "two servers listen on " << server.address().text();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot listen on " + server.address().text()));
  }
  EXPECT_NE(connected(server.address()), nullptr);
}

TEST(MessageServerOnAPath, ItsFileIsPrivateAndGoesAway) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "socket";
  Recorder handler;
  {
    const MessageServer server(Address::unix_path(path), handler);
    struct stat facts {};
    ASSERT_EQ(::stat(path.c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0600U);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(MessageServerOnAPath, TheFileOfADeadServerIsReplacedButNoOtherFile) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "socket";
  Recorder handler;
  {  // what a killed server leaves
    const SocketListener dead(Address::unix_path(path));
    std::filesystem::rename(path, path + ".kept");
  }
  std::filesystem::rename(path + ".kept", path);
  {
    const MessageServer server(Address::unix_path(path), handler);
    EXPECT_NE(connected(server.address()), nullptr);
  }
  std::ofstream(path) << "a file of the user's";
  EXPECT_THROW(MessageServer(Address::unix_path(path), handler), InputError);
  EXPECT_TRUE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace distbelief
