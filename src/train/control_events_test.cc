#include "train/control_events.h"

#include <gtest/gtest.h>

#include "comm/group.h"
#include "transport/local/local_fabric.h"

namespace distbelief {
namespace {

using Bond = ControlEvents::Bond;
using Kind = Outcome::Kind;

MemberInfo worker(int rank) {
  return {.id = static_cast<std::uint64_t>(rank) + 10, .role = Role::worker, .rank = Rank{rank}, .host = "alpha"};
}

View view(std::uint64_t number, const std::vector<int>& ranks, const std::vector<int>& failed = {}) {
  View made = {.number = number, .reason = "somebody came or went", .peaceful = failed.empty()};
  for (const int rank : ranks) {
    made.members.push_back(worker(rank));
  }
  for (const int rank : failed) {
    made.failed.push_back(worker(rank).id);
  }
  return made;
}

/// Rank 0 of a job that began with three.
class Regroups : public testing::Test {
 protected:
  Regroups() {
    events.set_fabric(fabrics[0].get());
    events(view(1, {0, 1, 2}));
  }
  ~Regroups() override { events.set_fabric(nullptr); }

  /// How a receive from rank 2 in the group of this view stands.
  Kind open_with_2(std::uint32_t number) {
    std::byte place{};
    Transfer transfer;
    fabrics[0]->receive(transfer, Rank{2}, {number, next_++}, std::span(&place, 1));
    return fabrics[0]->wait(transfer, Clock::now()).kind;
  }
  std::uint64_t next_after(std::uint64_t number) {
    const std::optional<View> next = events.next_view(number, Clock::now());
    return next ? next->number : 0;
  }

  std::vector<std::unique_ptr<Fabric>> fabrics = make_local_fabrics(4);
  ControlEvents events{Bond::regroups};

 private:
  std::uint32_t next_ = 0;
};

TEST_F(Regroups, WhoFailedAndLeftIsNamedOnce) {
  View next = view(2, {0, 1}, {2});
  next.reason = describe(worker(2)) + " failed: no room";
  events(next);
  EXPECT_EQ(events.explain("a link broke"), describe(worker(2)) + ": failed: no room");
}

TEST_F(Regroups, WhoCameDoesNotWaitForThoseThatAreDoneAndLeft) {
  ControlEvents newcomer(Bond::regroups, 2, true);
  newcomer(view(2, {0, 2, 3}, {1}));
  newcomer(view(3, {2, 3}, {1}));
  const std::optional<View> next = newcomer.next_view(1, Clock::now());
  ASSERT_TRUE(next);
  EXPECT_EQ(next->number, 3U);
}

TEST_F(Regroups, AViewThatAwaitsSomebodyIsNoneToFormAGroupOf) {
  events(MemberLost{worker(1), "was killed by signal 9"});
  View awaiting = view(2, {0, 2}, {1});
  awaiting.awaited = 1;
  events(awaiting);
  EXPECT_EQ(next_after(1), 0U);
  events(view(3, {0, 2, 3}, {1}));
  EXPECT_EQ(next_after(1), 3U);
}

TEST_F(Regroups, ALossEndsTheGroupsThatItWasInAlsoBetweenThoseWhoLive) {
  EXPECT_EQ(open_with_2(1), Kind::timed_out);
  EXPECT_EQ(next_after(1), 0U);
  events(MemberLost{worker(1), "was killed by signal 9"});
  events(view(2, {0, 2}, {1}));
  for (const std::uint32_t epoch : Group::tag_epochs(1)) {
    EXPECT_EQ(open_with_2(epoch), Kind::interrupted);
  }
  EXPECT_EQ(open_with_2(2), Kind::timed_out);
  EXPECT_EQ(next_after(1), 2U);
  ASSERT_EQ(events.lost().size(), 1U);
  EXPECT_EQ(events.lost()[0].reason, "was killed by signal 9");
}

TEST_F(Regroups, WhoFailedAndLeftIsALossToo) {
  events(view(2, {0, 2}, {1}));
  EXPECT_EQ(open_with_2(1), Kind::interrupted);
  ASSERT_EQ(events.lost().size(), 1U);
  EXPECT_EQ(events.lost()[0].member, worker(1));
}

TEST_F(Regroups, WhoLeavesWhenItIsDoneEndsNoGroupThatStands) {
  events(view(2, {0, 2}));
  EXPECT_EQ(open_with_2(1), Kind::timed_out);
  EXPECT_TRUE(events.lost().empty());
}

TEST_F(Regroups, AGroupThatIsStillToBeFormedIsOverWhenOneLeaves) {
  events(view(2, {0, 2, 3}, {1}));
  events(view(3, {0, 2}, {1}));  // 3 was done
  EXPECT_EQ(open_with_2(2), Kind::interrupted);
  EXPECT_EQ(next_after(1), 3U);
  events.formed(3);
  events(view(4, {0}, {1}));
  EXPECT_EQ(open_with_2(3), Kind::timed_out);
}

TEST_F(Regroups, NewcomersEndNothingAndAreKnown) {
  EXPECT_EQ(events.newest_with_changes(), 1U);
  events(view(2, {0, 1, 2, 3}));
  EXPECT_EQ(open_with_2(1), Kind::timed_out);
  EXPECT_EQ(events.newest_with_changes(), 2U);
  events.formed(2);
  EXPECT_EQ(events.newest_with_changes(), 2U);
}

TEST_F(Regroups, ALossAmongNewcomersOnlyEndsNoGroupWithoutThem) {
  events(view(2, {0, 1, 2, 3}));
  events(view(3, {0, 1, 2}, {3}));
  EXPECT_EQ(open_with_2(1), Kind::timed_out);
  EXPECT_EQ(open_with_2(2), Kind::interrupted);
  EXPECT_EQ(events.newest_with_changes(), 1U);
}

TEST_F(Regroups, AfterALossTheFirstViewOfTheLivingIsNextWhateverCameSince) {
  events(view(2, {0, 1, 2, 3}));
  events(view(3, {0, 2, 3}, {1}));
  events(view(4, {0, 2, 3}, {1}));
  EXPECT_EQ(next_after(1), 3U);
  events(view(5, {0, 2}, {1, 3}));
  EXPECT_EQ(next_after(1), 5U);
}

TEST_F(Regroups, WithoutACoordinatorNobodyIsWaitedFor) {
  events(CoordinatorLost{.fenced = true, .reason = "was silent"});
  EXPECT_EQ(open_with_2(1), Kind::peer_lost);
  EXPECT_FALSE(events.next_view(1, Clock::now() + std::chrono::minutes(1)).has_value());
  EXPECT_TRUE(events.fenced());
}

TEST_F(Regroups, ALostCoordinatorIsNamedAsWhatEndedTheRun) {
  events(CoordinatorLost{.reason = "nobody answers"});
  EXPECT_EQ(events.explain("seen"), "the coordinator is lost: nobody answers");
}

TEST(AllOrNone, ALossEndsAllForGood) {
  const auto fabrics = make_local_fabrics(3);
  ControlEvents events(Bond::all_or_none);
  events.set_fabric(fabrics[0].get());
  events(view(1, {0, 1, 2}));
  events(view(2, {0, 2}, {1}));
  std::byte place{};
  Transfer transfer;
  fabrics[0]->receive(transfer, Rank{2}, {9, 0}, std::span(&place, 1));
  EXPECT_EQ(fabrics[0]->wait(transfer, Clock::now()).kind, Kind::peer_lost);
  events.set_fabric(nullptr);
}

TEST_F(Regroups, FormsAGroupForWhoIsToLeaveOnceAndForNobodyWhoIsAwaited) {
  View awaited = view(2, {0, 1, 2, 3});
  awaited.awaited = 1;
  events(awaited);
  EXPECT_EQ(events.newest_with_changes(), 1U);
  View leaving = view(3, {0, 1, 2});
  leaving.leaving = {Rank{2}};
  events(leaving);
  EXPECT_EQ(events.newest_with_changes(), 3U);
  events.formed(3);
  leaving.number = 4;  // it is about to go, and others went before
  leaving.members.erase(leaving.members.begin() + 1);
  events(leaving);
  EXPECT_EQ(events.newest_with_changes(), 3U);
  View fewer = view(5, {0, 2});
  fewer.most_workers = 1;
  events(fewer);
  EXPECT_EQ(events.newest_with_changes(), 5U);
}

TEST(PartsLeaving, AreToldByTheNewestView) {
  const std::vector<std::unique_ptr<Fabric>> fabrics = make_local_fabrics(2);
  ControlEvents events(Bond::regroups, 2);
  View leaving = view(1, {0, 1});
  leaving.leaving = {Rank{1}};
  events(leaving);
  events.set_fabric(fabrics[1].get());
  EXPECT_TRUE(events.leaves());
  events(view(2, {0, 1}));  // it is to stay after all
  EXPECT_FALSE(events.leaves());
  events.set_fabric(nullptr);
}

}  // namespace
}  // namespace distbelief
