#include "cluster/control_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace distbelief {
namespace {

using testing::HasSubstr;

DecodedControl decode(std::uint16_t kind, const std::string& bytes) { return decode_control({kind, bytes}); }

std::string complaint_about(const ControlMessage& message) {
  const auto decoded = decode_control(encode_control(message));
  return decoded.ok() ? "none" : decoded.reason();
}

TEST(ControlMessage, SurvivesTheWire) {
  control::Join join;
  join.set_token("secret");
  join.set_rank(-1);
  join.set_role(control::SERVER);
  auto decoded = decode_control(encode_control(join));
  ASSERT_TRUE(decoded.ok());
  const auto& again = std::get<control::Join>(decoded.message());
  EXPECT_EQ(again.token(), "secret");
  EXPECT_EQ(again.rank(), -1);
  EXPECT_EQ(again.role(), control::SERVER);
}

TEST(ControlMessage, KeepsTheKindsThatOtherVersionsKnow) {
  EXPECT_EQ(kind_of(control::Join()), 1U);
  EXPECT_EQ(kind_of(control::Welcome()), 2U);
  EXPECT_EQ(kind_of(control::Refused()), 3U);
  EXPECT_EQ(kind_of(control::Ended()), 19U);
}

TEST(ControlMessage, NamesEveryKind) {
  EXPECT_EQ(kind_name(kind_of(control::Join())), "Join");
  EXPECT_EQ(kind_name(kind_of(control::Fenced())), "Fenced");
  EXPECT_EQ(kind_name(kind_of(control::LeaseDone())), "LeaseDone");
  EXPECT_EQ(kind_name(kind_of(control::ExitSeen())), "ExitSeen");
  EXPECT_EQ(kind_name(kind_of(control::Ended())), "Ended");
  EXPECT_EQ(kind_name(77), "kind 77");
}

TEST(ControlMessage, NumbersWhatMustNotGetLost) {
  EXPECT_FALSE(is_numbered(control::Heartbeat()));
  EXPECT_FALSE(is_numbered(control::Fenced()));
  EXPECT_TRUE(is_numbered(control::View()));
  EXPECT_TRUE(is_numbered(control::LeaseDone()));
  EXPECT_TRUE(is_numbered(control::Leave()));
}

TEST(ControlMessage, RefusesUnknownKinds) {
  EXPECT_EQ(decode(0, "").reason(), "a message of unknown kind 0");
  EXPECT_EQ(decode(99, "").reason(), "a message of unknown kind 99");
  EXPECT_EQ(decode(0xFFFF, "").reason(), "a message of unknown kind 65535");
}

TEST(ControlMessage, RefusesBytesThatAreNoMessage) {
  EXPECT_EQ(decode(1, "\xFF\xFF\xFF").reason(), "3 bytes that are no Join");
  EXPECT_THAT(decode(7, std::string(kMaxControlBytes + 1, 'x')).reason(), HasSubstr("a View of 1048577 bytes"));
}

TEST(ControlMessage, RefusesValuesThatNobodySends) {
  control::Join join;
  join.set_rank(-2);
  EXPECT_EQ(complaint_about(join), "a Join with rank -2");
  join.set_rank(0);
  join.set_role(static_cast<control::Role>(9));
  EXPECT_EQ(complaint_about(join), "a Join with role 9");
  join.set_role(control::ANY);
  join.set_host(std::string(5000, 'h'));
  EXPECT_EQ(complaint_about(join), "a Join with host of 5000 bytes");

  control::Order order;
  EXPECT_EQ(complaint_about(order), "an Order with order 0");
  order.set_what(static_cast<control::Order::What>(7));
  EXPECT_NE(complaint_about(order), "none");
  order.set_what(control::Order::STOP);
  EXPECT_EQ(complaint_about(order), "none");

  control::LeaseRequest request;
  EXPECT_EQ(complaint_about(request), "a LeaseRequest with samples 0");
  control::Heartbeat heartbeat;
  heartbeat.mutable_progress()->set_step(-1);
  EXPECT_EQ(complaint_about(heartbeat), "a Heartbeat with step -1");
  control::Lost lost;
  EXPECT_EQ(complaint_about(lost), "a Lost with role 0");
}

TEST(ControlMessage, CarriesAViewAsOthersSeeIt) {
  const MemberInfo info{.id = 7,
                        .incarnation = 9,
                        .role = Role::worker,
                        .rank = Rank{2},
                        .host = "alpha",
                        .pid = 4711,
                        .facts = "tcp:alpha:1"};
  control::View wire;
  wire.set_number(3);
  wire.set_complete(true);
  *wire.add_members() = to_wire(info);
  const View view = from_wire(wire);
  EXPECT_EQ(view.number, 3U);
  EXPECT_TRUE(view.complete);
  ASSERT_NE(view.find(Rank{2}), nullptr);
  EXPECT_EQ(*view.find(Rank{2}), info);
  EXPECT_EQ(view.find(Rank{1}), nullptr);
  EXPECT_EQ(describe(info), "worker 2 (pid 4711 on alpha)");
}

}  // namespace
}  // namespace distbelief
