#include "server/ownership.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace distbelief {
namespace {

/// Copies that a primary makes at a time: each takes as much memory as its shelf.
constexpr int kCopiesAtOnce = 4;

}  // namespace

Ownership::Ownership(std::vector<std::string> hosts, int copies, int shelves)
    : copies_(copies), holders_(static_cast<std::size_t>(shelves)) {
  check(!hosts.empty() && (copies == 1 || copies == 2), "one or two holders of each shelf");
  check(shelves >= static_cast<int>(hosts.size()), "a shelf for each server");
  for (std::string& host : hosts) {
    servers_.push_back({.host = std::move(host), .lives = true});
  }
  for (int shelf = 0; shelf < shelves; ++shelf) {
    holders_[static_cast<std::size_t>(shelf)].primary = shelf % static_cast<int>(servers_.size());
  }
  target_ = holders_;
  copied_.resize(holders_.size());
  plan_backups(staying());
  holders_ = target_;
}

std::vector<int> Ownership::living() const {
  std::vector<int> numbers;
  for (int server = 0; server < static_cast<int>(servers_.size()); ++server) {
    if (lives(server)) {
      numbers.push_back(server);
    }
  }
  return numbers;
}

std::vector<int> Ownership::staying() const {
  std::vector<int> numbers = living();
  std::erase_if(numbers, [&](int server) { return leaves(server); });
  return numbers;
}

bool Ownership::holds_something(int server) const {
  return std::ranges::any_of(holders_, [&](const Holders& shelf) {
    return shelf.primary == server || shelf.backup == server || shelf.coming == server;
  });
}

bool Ownership::settled() const {
  for (int shelf = 0; shelf < shelves(); ++shelf) {
    if (step(shelf) != Step::none) {
      return false;
    }
  }
  return true;
}

void Ownership::lose(int server) {
  ++changes_;
  if (!lives(server)) {
    return;
  }
  servers_[static_cast<std::size_t>(server)].lives = false;
  for (Holders& shelf : holders_) {
    if (shelf.primary == server) {
      shelf = {.primary = shelf.backup};  // the copy was the lost one's to make
    } else {
      shelf.backup = shelf.backup == server ? kNobody : shelf.backup;
      shelf.coming = shelf.coming == server ? kNobody : shelf.coming;
    }
  }
  if (staying().empty()) {
    for (const int left : living()) {  // or gone, if it holds nothing
      servers_[static_cast<std::size_t>(left)].leaves = !holds_something(left);
    }
  }
  plan();
}

void Ownership::join(int server, const std::string& host) {
  ++changes_;
  if (!is_known(server)) {
    servers_.resize(static_cast<std::size_t>(server) + 1);
  }
  servers_[static_cast<std::size_t>(server)] = {.host = host, .lives = true};
  evens_out_ = true;
  plan();
}

void Ownership::leave(int server) {
  ++changes_;
  if (!lives(server) || staying().size() < 2) {
    return;
  }
  servers_[static_cast<std::size_t>(server)].leaves = true;
  evens_out_ = true;
  plan();
}

void Ownership::move(int shelf, int primary, int backup) {
  Holders& holders = holders_.at(static_cast<std::size_t>(shelf));
  copied_[static_cast<std::size_t>(shelf)] += backup != kNobody && backup == holders.coming ? 1 : 0;
  holders = {.primary = primary, .backup = backup, .coming = holders.coming == backup ? kNobody : holders.coming};
  begin_copies();
}

int Ownership::planned(int server, int Holders::*as) const {
  return static_cast<int>(std::ranges::count_if(target_, [&](const Holders& shelf) { return shelf.*as == server; }));
}

bool Ownership::same_host(int a, int b) const {
  return servers_[static_cast<std::size_t>(a)].host == servers_[static_cast<std::size_t>(b)].host;
}

/// As little as possible moves: what is with somebody who stays, stays there, unless shares are uneven.
void Ownership::plan() {
  const std::vector<int> servers = staying();
  if (servers.empty()) {
    target_ = holders_;
    return;
  }
  target_.clear();
  for (const Holders& shelf : holders_) {
    target_.push_back({.primary = shelf.primary, .backup = shelf.coming != kNobody ? shelf.coming : shelf.backup});
  }
  plan_primaries(servers);
  if (evens_out_) {
    even_out_primaries(servers);
  }
  plan_backups(servers);
  if (evens_out_) {
    even_out_backups(servers);
  }
  begin_copies();
}

void Ownership::plan_primaries(const std::vector<int>& servers) {
  for (Holders& shelf : target_) {
    if (shelf.primary == kNobody) {
      continue;  // lost for good
    }
    shelf.backup = stays(shelf.backup) ? shelf.backup : kNobody;
    if (!stays(shelf.primary)) {
      shelf = {.primary = shelf.backup};
    }
    if (copies_ == 1 || servers.size() == 1) {
      shelf.backup = kNobody;
    }
  }
  for (std::size_t i = 0; i < target_.size(); ++i) {
    if (target_[i].primary == kNobody && holders_[i].primary != kNobody) {
      target_[i].primary = *std::ranges::min_element(
          servers, {}, [&](int server) { return std::pair(planned(server, &Holders::primary), server); });
    }
  }
}

void Ownership::even_out_primaries(const std::vector<int>& servers) {
  const auto load = [&](int server) { return planned(server, &Holders::primary); };
  while (true) {
    const int fullest = *std::ranges::max_element(servers, {}, load);
    const int emptiest = *std::ranges::min_element(servers, {}, load);
    if (load(fullest) - load(emptiest) < 2) {
      return;
    }
    Holders* best = nullptr;
    int best_claim = 0;
    for (std::size_t i = 1; i < target_.size(); ++i) {  // for even shares nobody else is to lead
      const Holders& now = holders_[i];
      const int claim = now.backup == emptiest || now.coming == emptiest ? 2  // then nothing need be copied
                        : now.coming == kNobody                          ? 1
                                                                         : 0;
      if (target_[i].primary == fullest && (best == nullptr || claim > best_claim)) {
        best = &target_[i];
        best_claim = claim;
      }
    }
    *best = {.primary = emptiest, .backup = copies_ == 1 ? kNobody : fullest};
  }
}

int Ownership::choose_backup(int primary, const std::vector<int>& servers) const {
  const auto order = [&](int server) {
    const int all = static_cast<int>(servers_.size());
    return std::tuple(same_host(server, primary),
                      planned(server, &Holders::primary) + planned(server, &Holders::backup),
                      (server - primary + all) % all);
  };
  int best = kNobody;
  for (const int server : servers) {
    if (server != primary && (best == kNobody || order(server) < order(best))) {
      best = server;
    }
  }
  return best;
}

void Ownership::plan_backups(const std::vector<int>& servers) {
  for (Holders& shelf : target_) {
    if (copies_ == 2 && shelf.primary != kNobody && shelf.backup == kNobody) {
      shelf.backup = choose_backup(shelf.primary, servers);
    }
  }
}

void Ownership::even_out_backups(const std::vector<int>& servers) {
  const auto load = [&](int server) { return planned(server, &Holders::backup); };
  while (true) {
    // From the fullest that has something which a much emptier one can take, without a loss of safety.
    Holders* best = nullptr;
    int best_to = kNobody;
    int best_gain = 1;
    bool best_is_new = false;
    for (Holders& shelf : target_) {
      if (shelf.backup == kNobody) {
        continue;
      }
      const Holders& now = holders_[static_cast<std::size_t>(&shelf - target_.data())];
      const bool is_new = now.backup != shelf.backup && now.primary != shelf.backup;  // it is copied anyway
      for (const int to : servers) {
        const int gain = load(shelf.backup) - load(to);
        const bool may =
            to != shelf.primary && (same_host(shelf.backup, shelf.primary) || !same_host(to, shelf.primary));
        if (may && (gain > best_gain || (gain == best_gain && gain > 1 && is_new && !best_is_new))) {
          best = &shelf;
          best_to = to;
          best_gain = gain;
          best_is_new = is_new;
        }
      }
    }
    if (best == nullptr) {
      return;
    }
    best->backup = best_to;
  }
}

int Ownership::next_copy(int shelf) const {
  const Holders& now = of(shelf);
  const Holders& goal = target_[static_cast<std::size_t>(shelf)];
  if (now.primary == kNobody || now.coming != kNobody) {
    return now.coming;
  }
  const auto is_goal = [&](int server) {
    return server != kNobody && (server == goal.primary || server == goal.backup);
  };
  if (is_goal(now.primary)) {
    const int other = now.primary == goal.primary ? goal.backup : goal.primary;
    return other == now.backup ? kNobody : other;
  }
  return is_goal(now.backup) ? kNobody : goal.primary;
}

Ownership::Step Ownership::step(int shelf) const {
  const Holders& now = of(shelf);
  const Holders& goal = target_[static_cast<std::size_t>(shelf)];
  if (next_copy(shelf) != kNobody) {
    return Step::copy;
  }
  if (now.primary == kNobody || (now.primary == goal.primary && now.backup == goal.backup)) {
    return Step::none;
  }
  return now.primary == goal.primary ? Step::drop : Step::swap;
}

void Ownership::begin_copies() {
  for (int shelf = 0; shelf < shelves(); ++shelf) {
    Holders& now = holders_[static_cast<std::size_t>(shelf)];
    const int to = now.coming == kNobody ? next_copy(shelf) : kNobody;
    const auto under_way = std::ranges::count_if(
        holders_, [&](const Holders& other) { return other.coming != kNobody && other.primary == now.primary; });
    if (lives(to) && under_way < kCopiesAtOnce) {
      now.coming = to;
    }
  }
}

}  // namespace distbelief
