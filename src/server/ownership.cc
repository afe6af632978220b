#include "server/ownership.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace distbelief {

Ownership::Ownership(std::vector<std::string> hosts, int copies)
    : hosts_(std::move(hosts)), copies_(copies), lives_(hosts_.size(), true), holders_(hosts_.size()) {
  check(!hosts_.empty() && (copies == 1 || copies == 2), "one or two holders of each shelf");
  for (int server = 0; server < servers(); ++server) {
    holders_[static_cast<std::size_t>(server)].primary = server;
  }
  for (Holders& shelf : holders_) {
    shelf.backup = choose_backup(shelf.primary);
  }
}

void Ownership::lose(int server) {
  if (!lives(server)) {
    return;
  }
  lives_[static_cast<std::size_t>(server)] = false;
  ++losses_;
  std::vector<Holders*> changed;
  for (Holders& shelf : holders_) {
    if (shelf.primary == server || shelf.backup == server) {
      shelf = {.primary = shelf.primary == server ? shelf.backup : shelf.primary};
      changed.push_back(&shelf);
    }
  }
  for (Holders* shelf : changed) {
    shelf->backup = choose_backup(shelf->primary);
  }
}

int Ownership::held_by(int server) const {
  return static_cast<int>(std::ranges::count_if(
      holders_, [&](const Holders& shelf) { return shelf.primary == server || shelf.backup == server; }));
}

int Ownership::choose_backup(int primary) const {
  if (copies_ == 1 || primary == kNobody) {
    return kNobody;
  }
  const auto order = [&](int server) {
    return std::tuple(hosts_[static_cast<std::size_t>(server)] == hosts_[static_cast<std::size_t>(primary)],
                      held_by(server), (server - primary + servers()) % servers());
  };
  int best = kNobody;
  for (int server = 0; server < servers(); ++server) {
    if (server != primary && lives(server) && (best == kNobody || order(server) < order(best))) {
      best = server;
    }
  }
  return best;
}

}  // namespace distbelief
