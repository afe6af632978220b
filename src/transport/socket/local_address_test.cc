#include "transport/socket/local_address.h"

#include <gtest/gtest.h>

#include "base/test_deadline.h"
#include "transport/socket/socket_listener.h"

namespace distbelief {
namespace {

TEST(LocalAddress, OfALoopbackPeerIsLoopback) {
  EXPECT_EQ(local_host_towards(Address::tcp("127.0.0.1", 1)), "127.0.0.1");
}

TEST(LocalAddress, OfAnUnknownHostIsEmpty) {
  EXPECT_EQ(local_host_towards(Address::tcp("no-such-host.invalid", 1)), "");
}

TEST(LocalAddress, OfThisMachineCanBeListenedOnAndIsNotLoopback) {
  for (const std::string& host : hosts_of_this_machine()) {
    EXPECT_FALSE(host.starts_with("127.")) << host;
    EXPECT_NE(SocketListener(Address::tcp(host, 0)).address().port, 0) << host;
  }
}

TEST(FindListener, TakesTheFirstThatAnswers) {
  const SocketListener listener(Address::tcp("127.0.0.1", 0));
  const Address closed = [] { return SocketListener(Address::tcp("127.0.0.1", 0)).address(); }();
  const FoundListener found = find_listener(std::vector{closed, listener.address()}, soon());
  ASSERT_TRUE(found.address.has_value()) << found.reason;
  EXPECT_EQ(*found.address, listener.address());
}

TEST(FindListener, NamesTheAddressWhenNobodyAnswers) {
  const Address closed = [] { return SocketListener(Address::tcp("127.0.0.1", 0)).address(); }();
  const FoundListener found = find_listener(std::vector{closed}, Clock::now());
  EXPECT_FALSE(found.address.has_value());
  EXPECT_NE(found.reason.find(closed.text()), std::string::npos) << found.reason;
}

}  // namespace
}  // namespace distbelief
