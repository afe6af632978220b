#include "train/newcomers.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "train/peer_facts.h"

namespace distbelief {
namespace {

constexpr std::chrono::milliseconds kBetweenLooksForNewcomers{10};
constexpr std::chrono::minutes kNewcomersPatience{10};  // who does not come is given up long before

}  // namespace

bool ServedLinkRule::is_ready(const View& view, const MemberInfo& member) const {
  return parts == 1 || member.role != Role::worker || std::ranges::count_if(view.members, [&](const MemberInfo& other) {
                                                        return is_one_copy(member, other);
                                                      }) == parts;
}

Newcomers::Newcomers(GrowingFabric& fabric, LockedFabric* locked, ControlEvents& events, const View& view,
                     const MemberInfo& self, const ServedLinkRule& rule)
    : fabric_(fabric), locked_(locked), events_(events), self_(self), rule_(rule), view_(view.number) {
  for (const MemberInfo& member : view.members) {
    if (rule_.is_ready(view, member)) {
      known_.insert(member.rank.value);
    } else {
      unready_.emplace(member.rank.value, member);
    }
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { meet(stop); });
}

Newcomers::~Newcomers() = default;

std::vector<MemberInfo> Newcomers::look_for_them() {
  for (const MemberInfo& member : events_.members_since(view_)) {
    if (!known_.contains(member.rank.value) && rule_.links(self_, member)) {
      unready_.emplace(member.rank.value, member);
    }
  }
  std::vector<MemberInfo> ready;
  const std::optional<View> view = unready_.empty() ? std::nullopt : events_.view(view_);
  for (const auto& [rank, member] : std::map<int, MemberInfo>(unready_)) {
    if (view && view->find(member.rank) == nullptr) {
      unready_.erase(rank);  // it is gone
    } else if (view && rule_.is_ready(*view, member)) {
      unready_.erase(rank);
      known_.insert(rank);
      ready.push_back(member);
    }
  }
  return ready;
}

void Newcomers::meet(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    for (const MemberInfo& member : look_for_them()) {
      const auto given_up = [&](Rank rank) { return stop.stop_requested() || events_.is_gone(rank); };
      const std::map<int, Address> peer = {{member.rank.value, Address::parse(PeerFacts::of(member).late)}};
      // Shared: what is called has to be copied.
      const auto met = std::make_shared<std::unique_ptr<GrowingFabric::Met>>(
          fabric_.meet(peer, static_cast<std::uint32_t>(view_), given_up, Clock::now() + kNewcomersPatience));
      const std::scoped_lock lock(mutex_);
      met_.push_back({.rank = member.rank,
                      .incarnation = member.incarnation,
                      .is_worker = member.role == Role::worker,
                      .is_server = rule_.inside || member.role == Role::server,
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

bool meet_those_that_are_there(GrowingFabric& fabric, ControlEvents& events, const View& view, const MemberInfo& self,
                               const ServedLinkRule& rule, Clock::time_point deadline) {
  std::map<int, Address> peers;
  for (const MemberInfo& member : view.members) {
    if (rule.links(self, member) && rule.is_ready(view, member)) {
      peers.emplace(member.rank.value, Address::parse(PeerFacts::of(member).late));
    }
  }
  const auto given_up = [&](Rank rank) {  // the view may be known here before `events` has heard of it
    return events.coordinator_lost() || (events.view(view.number) && events.is_gone(rank));
  };
  return fabric.grow(peers, static_cast<std::uint32_t>(view.number), given_up, deadline).ok;
}

}  // namespace distbelief
