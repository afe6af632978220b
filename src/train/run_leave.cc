// How a member leaves a team whose others go on. All of them know it after the same step, in which nothing of the one
// that leaves is missing: they have its share of the sum. So no step is made again. The others wait for the view
// without it, which the coordinator issues when it has said goodbye there.
//
// When somebody dies just then, some may have heard of it and others not. Nobody relies on it: who has heard forms the
// group of the next view all the same, whoever is in it; who wants to leave and has not heard that all know takes part
// in that group, and leaves it after its first step.
#include <algorithm>

#include "train/trainer_run.h"

namespace distbelief {
namespace {

/// No strategy has a message open under this number when its members are between two steps.
constexpr std::uint32_t kGoodbye = 0;
/// A word of one byte is mostly gone as soon as it is said.
constexpr std::chrono::seconds kGoodbyePatience{20};

}  // namespace

Outcome Trainer::Run::agree_on_changes(Changes& changes) const {
  enum Place : std::size_t { kNewest, kLeaves, kKnows, kNumbers };
  std::vector<std::uint64_t> told(kNumbers * static_cast<std::size_t>(team.size()));
  const auto told_by = [&](int position) {
    return std::span(told).subspan(kNumbers * static_cast<std::size_t>(position), kNumbers);
  };
  const std::span<std::uint64_t> own = told_by(team.position());
  own[kNewest] = team.newest();
  own[kLeaves] = team.leaving && team.leaving() ? 1 : 0;
  own[kKnows] = strategy->holds_state() ? 1 : 0;
  Outcome outcome = team.group->all_gather(told, Clock::now() + team.patience);
  if (!outcome.ok()) {
    return outcome;
  }
  bool one_stays = false;
  for (int position = 0; position < team.size(); ++position) {
    const std::span<std::uint64_t> member = told_by(position);
    changes.newest = std::max(changes.newest, static_cast<std::uint32_t>(member[kNewest]));
    if (member[kLeaves] != 0) {
      changes.leavers.push_back(position);
    }
    one_stays = one_stays || (member[kLeaves] == 0 && member[kKnows] != 0);
  }
  if (!one_stays && !changes.leavers.empty()) {
    const auto knows = std::ranges::find_if(changes.leavers, [&](int leaver) { return told_by(leaver)[kKnows] != 0; });
    changes.leavers.erase(knows == changes.leavers.end() ? changes.leavers.begin() : knows);
  }
  return outcome;
}

bool Trainer::Run::leaves(const Changes& changes) const {
  return std::ranges::find(changes.leavers, team.position()) != changes.leavers.end();
}

void Trainer::Run::let_leave(const Changes& changes) {
  static constexpr std::byte kWord{};
  const Clock::time_point deadline = Clock::now() + kGoodbyePatience;
  Fabric& fabric = team.group->fabric();
  for (const int leaver : changes.leavers) {
    if (leaver != team.position()) {
      Transfer transfer;
      fabric.send(transfer, team.group->members()[static_cast<std::size_t>(leaver)], team.group->peer_tag(kGoodbye),
                  std::span(&kWord, 1));
      (void)fabric.wait(transfer, deadline);  // if it is dead, the next view tells
    }
  }
}

RunSummary Trainer::Run::leave_team(const Changes& changes) {
  doing(WorkerActivity::Kind::ending);
  Group& group = *team.group;
  goodbyes.resize(static_cast<std::size_t>(group.size()));
  std::vector<Transfer> transfers(goodbyes.size());
  const auto for_all_others = [&](const auto& act) {
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      if (static_cast<int>(i) != group.position()) {
        act(i);
      }
    }
  };
  for_all_others([&](std::size_t i) {
    group.fabric().receive(transfers[i], group.members()[i], group.peer_tag(kGoodbye), std::span(&goodbyes[i], 1));
  });
  let_leave(changes);
  if (folder) {  // the next one to lead finds all of it
    hear_of_checkpoints(true);
    writer.reset();
    metrics.reset();
    events.reset();
  }
  const Clock::time_point deadline = Clock::now() + team.patience;
  for_all_others([&](std::size_t i) {
    (void)group.fabric().wait(transfers[i], deadline);  // who is gone need not know
  });
  RunSummary summary;
  summary.status = "left";
  summary.steps = state.step;
  summary.folder = config.out;
  return summary;
}

}  // namespace distbelief
