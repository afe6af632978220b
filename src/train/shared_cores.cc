#include "train/shared_cores.h"

#include <algorithm>

#include "train/core_share.h"
#include "train/peer_facts.h"

namespace distbelief {

SharedCores share_cores(const View& view, Rank self, const RunConfig& config, bool late) {
  const MemberInfo& own = *view.find(self);
  int index = 0;
  int sharers = 0;
  int servers = 0;
  for (const MemberInfo& member : view.members) {
    if (member.host != own.host || PeerFacts::of(member).cores != PeerFacts::of(own).cores) {
      continue;
    }
    if (member.role == Role::worker) {
      index += member.rank < self ? 1 : 0;
      ++sharers;
    } else {
      ++servers;
    }
  }
  SharedCores shared = {.sharers = std::max(1, sharers)};
  if (config.bind != "cores" || sharers == 0 || late) {
    return shared;
  }
  const bool serves = own.role == Role::server;
  const CorePlan plan =
      plan_cores({.workers = sharers, .threads = static_cast<int>(config.threads), .servers = servers});
  const std::string cores = serves                 ? plan.spare
                            : plan.workers.empty() ? ""
                                                   : plan.workers[static_cast<std::size_t>(index)];
  if (!cores.empty() && bind_process(cores)) {
    shared.sharers = 1;
    shared.side = plan.spare.empty() || serves ? "" : cores + "," + plan.spare;
  }
  return shared;
}

}  // namespace distbelief
