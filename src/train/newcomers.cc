#include "train/newcomers.h"

#include <chrono>
#include <memory>

#include "train/peer_facts.h"

namespace distbelief {
namespace {

constexpr std::chrono::milliseconds kBetweenLooksForNewcomers{10};
constexpr std::chrono::minutes kNewcomersPatience{10};  // who does not come is given up long before

bool talk_to_each_other(Role one, Role other, bool inside) {
  return inside || one == Role::server || other == Role::server;
}

}  // namespace

Newcomers::Newcomers(GrowingFabric& fabric, LockedFabric* locked, ControlEvents& events, const View& view, Role self,
                     bool inside)
    : fabric_(fabric), locked_(locked), events_(events), self_(self), inside_(inside), view_(view.number) {
  for (const MemberInfo& member : view.members) {
    known_.insert(member.rank.value);
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { meet(stop); });
}

Newcomers::~Newcomers() = default;

void Newcomers::meet(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    for (const MemberInfo& member : events_.members_since(view_)) {
      if (!known_.insert(member.rank.value).second || !talk_to_each_other(self_, member.role, inside_)) {
        continue;
      }
      const auto given_up = [&](Rank rank) { return stop.stop_requested() || events_.is_gone(rank); };
      const std::map<int, Address> peer = {{member.rank.value, Address::parse(PeerFacts::of(member).late)}};
      // Shared: what is called has to be copied.
      const auto met = std::make_shared<std::unique_ptr<GrowingFabric::Met>>(
          fabric_.meet(peer, static_cast<std::uint32_t>(view_), given_up, Clock::now() + kNewcomersPatience));
      const std::scoped_lock lock(mutex_);
      met_.push_back({.rank = member.rank,
                      .incarnation = member.incarnation,
                      .is_worker = member.role == Role::worker,
                      .is_server = inside_ || member.role == Role::server,
                      .link = [this, met] {
                        const auto adopt = [&] { (void)fabric_.adopt(std::move(*met)); };
                        locked_ == nullptr ? adopt() : locked_->alone(adopt);
                      }});
    }
    std::this_thread::sleep_for(kBetweenLooksForNewcomers);
  }
}

std::vector<ServedTeam::Newcomer> Newcomers::take() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(met_, {});
}

bool meet_those_that_are_there(GrowingFabric& fabric, ControlEvents& events, const View& view, Role self, bool inside,
                               Clock::time_point deadline) {
  std::map<int, Address> peers;
  for (const MemberInfo& member : view.members) {
    if (talk_to_each_other(self, member.role, inside)) {
      peers.emplace(member.rank.value, Address::parse(PeerFacts::of(member).late));
    }
  }
  const auto given_up = [&](Rank rank) {  // the view may be known here before `events` has heard of it
    return events.coordinator_lost() || (events.view(view.number) && events.is_gone(rank));
  };
  return fabric.grow(peers, static_cast<std::uint32_t>(view.number), given_up, deadline).ok;
}

}  // namespace distbelief
