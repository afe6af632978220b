#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <future>
#include <mutex>

#include "base/error.h"
#include "base/test_deadline.h"
#include "transport/fabric_contract.h"
#include "transport/socket/message_client.h"
#include "transport/socket/message_server.h"
#include "transport/socket/socket_fabric.h"
#include "transport/socket/tls_stream.h"
#include "transport/temporary_folder.h"

namespace distbelief {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Received = MessageClient::Received;

/// Two authorities, "ours" and "theirs", and a certificate of each.
class Certificates {
 public:
  Certificates() {
    for (const std::string name : {"ours", "theirs"}) {
      const std::string at = folder_.path() / name;
      const std::string new_key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout";
      openssl(fmt::format("req -x509 {0} {1}-ca.key -out {1}-ca.pem -days 2 -subj /CN=authority", new_key, at));
      openssl(fmt::format("req -new {0} {1}.key -out {1}.csr -subj /CN=process", new_key, at));
      openssl(fmt::format("x509 -req -in {0}.csr -CA {0}-ca.pem -CAkey {0}-ca.key -CAcreateserial -days 2 -out {0}.pem",
                          at));
    }
  }

  TlsOptions of(const std::string& name, const std::string& trusted) const {
    return {file(name + ".pem"), file(name + ".key"), file(trusted + "-ca.pem")};
  }
  std::filesystem::path file(const std::string& name) const { return folder_.path() / name; }

 private:
  static void openssl(const std::string& arguments) {
    EXPECT_EQ(std::system(("openssl " + arguments + " 2>/dev/null").c_str()), 0) << "openssl " << arguments;
  }
  TemporaryFolder folder_;
};

const Certificates& certificates() {
  static const Certificates made;  // a tenth of a second
  return made;
}

class Echo : public MessageServer::Handler {
 public:
  void opened(ConnectionId /*id*/, const std::string& /*peer*/) override {
    const std::scoped_lock lock(mutex);
    ++opened_count;
    changed.notify_all();
  }
  void message(ConnectionId id, Message message) override { server->send(id, message); }
  void closed(ConnectionId /*id*/, const std::string& /*reason*/) override {}

  MessageServer* server = nullptr;
  std::mutex mutex;
  std::condition_variable changed;
  int opened_count = 0;  // guarded by mutex
};

class Tls : public testing::Test {
 protected:
  Tls() { handler.server = &server; }

  Echo handler;
  MessageServer server{
      Address::tcp("127.0.0.1", 0), handler,
      MessageServer::Options{.limits = {.longest_before_trust = 4 << 20}, .tls = certificates().of("ours", "ours")}};
};

TEST_F(Tls, MessagesArriveBothWays) {
  const auto [client, reason, refused] =
      MessageClient::connect(server.address(), soon(), {.tls = certificates().of("ours", "ours")});
  ASSERT_NE(client, nullptr) << reason;
  for (const std::size_t bytes : {0UL, 1UL, 16'000UL, 16'384UL, 3'000'000UL}) {
    ASSERT_TRUE(client->send({5, std::string(bytes, 'x')}));
  }
  for (const std::size_t bytes : {0UL, 1UL, 16'000UL, 16'384UL, 3'000'000UL}) {
    const Received received = client->receive(soon());
    ASSERT_EQ(received.kind, Received::Kind::message) << received.reason;
    EXPECT_TRUE(received.message == (Message{5, std::string(bytes, 'x')}));
  }
}

TEST_F(Tls, AStrangersCertificateIsNotAccepted) {
  const auto [client, reason, refused] =
      MessageClient::connect(server.address(), soon(), {.tls = certificates().of("theirs", "ours")});
  ASSERT_NE(client, nullptr) << reason;
  (void)client->send({1, "let me in"});
  EXPECT_EQ(client->receive(soon()).kind, Received::Kind::closed);
  const std::scoped_lock lock(handler.mutex);
  EXPECT_EQ(handler.opened_count, 0);
}

TEST_F(Tls, AStrangeServerIsNotAccepted) {
  const auto [client, reason, refused] =
      MessageClient::connect(server.address(), soon(), {.tls = certificates().of("ours", "theirs")});
  EXPECT_EQ(client, nullptr);
  EXPECT_THAT(reason, HasSubstr("has a certificate that is not accepted"));
}

TEST_F(Tls, WhoDoesNotEncryptIsClosed) {
  const auto [client, reason, refused] = MessageClient::connect(server.address(), soon());
  ASSERT_NE(client, nullptr) << reason;
  ASSERT_TRUE(client->send({1, "plain"}));
  EXPECT_EQ(client->receive(soon()).kind, Received::Kind::closed);
}

TEST(TlsFiles, BadOnesAreNamed) {
  const auto complaint = [](const TlsOptions& options) -> std::string {
    Echo handler;
    try {
      const MessageServer server(Address::tcp("127.0.0.1", 0), handler, {.tls = options});
    } catch (const InputError& error) {
      return error.what();
    }
    return "none";
  };
  const TlsOptions good = certificates().of("ours", "ours");
  const std::filesystem::path missing = certificates().file("missing.pem");
  const std::filesystem::path garbage = certificates().file("garbage.pem");
  std::ofstream(garbage) << "this is no certificate\n";
  EXPECT_EQ(complaint(good), "none");
  EXPECT_THAT(complaint({missing, good.key, good.ca}),
              AllOf(HasSubstr("TLS certificate"), HasSubstr(missing.string()), HasSubstr("No such file")));
  EXPECT_THAT(complaint({garbage, good.key, good.ca}), AllOf(HasSubstr("TLS certificate"), HasSubstr("garbage.pem")));
  EXPECT_THAT(complaint({good.cert, missing, good.ca}), AllOf(HasSubstr("TLS private key"), HasSubstr("missing.pem")));
  EXPECT_THAT(complaint({good.cert, certificates().file("theirs.key"), good.ca}),
              AllOf(HasSubstr("TLS private key"), HasSubstr("theirs.key"), HasSubstr("mismatch")));
  EXPECT_THAT(complaint({good.cert, good.key, garbage}), AllOf(HasSubstr("TLS authority"), HasSubstr("garbage.pem")));
}

TEST(TlsFiles, ACertificateOfAnotherAuthorityIsFoundOutBeforeItIsUsed) {
  EXPECT_NO_THROW(check_tls(certificates().of("ours", "ours")));
  try {
    check_tls(certificates().of("ours", "theirs"));
    ADD_FAILURE() << "accepted";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("ours.pem"), HasSubstr("theirs-ca.pem")));
  }
}

std::vector<std::unique_ptr<Fabric>> make_tls_fabrics(int ranks) {
  std::vector<std::unique_ptr<SocketListener>> listeners;
  std::vector<Address> addresses;
  for (int rank = 0; rank < ranks; ++rank) {
    listeners.push_back(std::make_unique<SocketListener>(Address::tcp("127.0.0.1", 0)));
    addresses.push_back(listeners.back()->address());
  }
  const SocketFabricOptions options = {.tls = certificates().of("ours", "ours")};
  std::vector<std::future<SocketFabricResult>> results;
  for (int rank = 0; rank < ranks; ++rank) {
    results.push_back(std::async(std::launch::async, [&, rank] {
      return connect_socket_fabric(Rank{rank}, addresses, *listeners[static_cast<std::size_t>(rank)], options, soon());
    }));
  }
  std::vector<std::unique_ptr<Fabric>> fabrics;
  for (auto& result : results) {
    SocketFabricResult connected = result.get();
    EXPECT_NE(connected.fabric, nullptr) << connected.reason;
    fabrics.push_back(std::move(connected.fabric));
  }
  return fabrics;
}

DISTBELIEF_INSTANTIATE_FABRIC_CONTRACT(Tls, make_tls_fabrics)

}  // namespace
}  // namespace distbelief
