// How shelves get from server to server while training goes on. Each server follows the table of owners (Ownership),
// which changes only by what the coordinator tells all: servers that come, go or are lost, and steps that a primary has
// said to be done. A primary
//   - makes a copy for who is coming, as for a backup that is made anew, while its backup stays what it is; once the
//   copy
//     is whole nothing is acknowledged without it, and when all know that it is the backup, the one before is let go;
//   - changes places with its backup: it stops answering, whoever asks is told that the shelf has moved, and when the
//     backup has all, it says so; when all know, the backup answers, and it is the backup, with the same state. Of the
//     first shelf, whose primary leads, it does so when the thread that leads has given that up.
// So what was acknowledged is at every moment with the two that the table names, whoever dies and whoever has not heard
// yet: who is not named does not answer. Events are taken in one after the other, as each is the end of one pairing of
// two holders and perhaps the beginning of another.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "metrics/format.h"
#include "train/served_links.h"

namespace distbelief {
namespace {

/// Until it is said again what nobody has heard: the coordinator may have been away, or had to wait.
constexpr std::chrono::milliseconds kBetweenTellings{100};

}  // namespace

bool ServedLinks::settled() {
  const Ownership now = team_.routes->now();
  const int self = team_.number();
  if (!now.settled()) {
    return false;
  }
  for (int number = 0; number < shelf_count(); ++number) {
    const Ownership::Holders& holders = now.of(number);
    const Shelf* shelf = find_shelf(number);
    if ((holders.primary == self && (shelf == nullptr || shelf->open_port == nullptr)) ||
        (holders.backup == self && shelf == nullptr)) {
      return false;
    }
  }
  return true;
}

bool ServedLinks::may_leave() {
  if (!replicated()) {
    return false;
  }
  const Ownership now = team_.routes->now();
  const std::scoped_lock lock(shelves_mutex_);
  return now.leaves(team_.number()) && !now.holds_something(team_.number()) &&
         std::ranges::all_of(shelves_, [](const auto& shelf) { return shelf->ordered == nullptr; });
}

std::uint64_t ServedLinks::bytes_moved() const { return replicated() ? bytes_moved(team_.routes->now()) : 0; }

std::uint64_t ServedLinks::bytes_moved(const Ownership& now) const {
  std::uint64_t bytes = 0;
  for (int number = 0; number < shelf_count(); ++number) {
    bytes += now.copied(number) * static_cast<std::uint64_t>(bytes_of(number));
  }
  return bytes;
}

void ServedLinks::watch_shelves() {
  if (!broken().empty()) {
    return;
  }
  for (const Ownership& next : team_.routes->since(*held_, seen_events_)) {
    for (int number = 0; number < shelf_count() && broken().empty(); ++number) {
      if (next.of(number) != held_->of(number)) {
        hold_as_in(next, number);
      }
    }
    tell_of_copies(next);
    if (next.leader() == team_.number()) {
      tell_news(next);
    }
    held_ = next;
  }
  const Ownership& now = *held_;
  if (now.evens_out() && now.settled()) {
    tell_shares(now);
    tell_idle(now);
  }
  if (team_.is_late_server && !now.lives(team_.number()) && Clock::now() - said_ready_at_ > kBetweenTellings) {
    said_ready_at_ = Clock::now();
    team_.tell({.what = ServerHistory::What::joined, .primary = team_.fabric->rank(), .changes = now.changes()});
  }
  follow_who_is_due(now);
  for (int number = 0; number < shelf_count(); ++number) {
    Shelf* shelf = now.of(number).primary == team_.number() ? find_shelf(number) : nullptr;
    if (shelf != nullptr && shelf->ordered != nullptr) {
      forget_old_backup(*shelf);
      take_step(*shelf, now);
    }
  }
  let_go_of_the_rest(now);
}

void ServedLinks::hold_as_in(const Ownership& now, int number) {
  const int self = team_.number();
  const Ownership::Holders before = held_->of(number);
  const Ownership::Holders after = now.of(number);
  Shelf* shelf = find_shelf(number);
  if (after.primary == Ownership::kNobody) {
    const std::scoped_lock lock(shelves_mutex_);
    broken_ = before.backup == Ownership::kNobody
                  ? fmt::format("the {} that held a part of the parameters is lost", team_.kind_of_server())
                  : fmt::format("both {}s that held a part of the parameters are lost", team_.kind_of_server());
    return;
  }
  if (after.primary == self) {
    check(shelf != nullptr && shelf->ordered != nullptr && shelf->ordered->whole(), "a backup is whole");
    if (before.primary == self) {
      go_on_as_primary(*shelf, now);
    } else {
      promote(*shelf,
              after.backup == Ownership::kNobody ? std::nullopt : std::optional(team_.rank_of_server(after.backup)));
    }
    return;
  }
  if (!now.lives(self)) {
    return;  // and is given up: the process will hear of that
  }
  if (before.primary == self) {
    demote(*shelf, after.primary);
  }
  if (after.coming == self && (before.coming != self || before.primary != after.primary)) {
    due_to_follow_.insert(number);
  }
}

void ServedLinks::go_on_as_primary(Shelf& shelf, const Ownership& now) {
  const Ownership::Holders before = held_->of(shelf.number);
  const Ownership::Holders after = now.of(shelf.number);
  OrderedServer& ordered = *shelf.ordered;
  const bool backup_lost = before.backup != Ownership::kNobody && !now.lives(before.backup);
  if (backup_lost) {
    ordered.change_backup({});
  }
  const bool adopts =
      ordered.copying() != nullptr && after.backup != Ownership::kNobody && after.backup == before.coming;
  if (adopts) {
    ordered.adopt_copy();
    on_link_thread([&] {
      shelf.old_sender = std::move(shelf.sender);
      shelf.sender = std::move(shelf.copy_sender);
    });
  } else if (ordered.copying() != nullptr && after.coming != before.coming) {  // who was coming is lost
    on_link_thread([&] { end(shelf, shelf.copy_sender); });
    ordered.end_copy();
  }
  if (!adopts && !backup_lost && before.backup != Ownership::kNobody && after.backup == Ownership::kNobody) {
    ordered.let_backup_go();
    on_link_thread([&] { shelf.old_sender = std::move(shelf.sender); });
  }
  shelf.told_at = {};
  link_.wake();
}

void ServedLinks::forget_old_backup(Shelf& shelf) {
  const ReplicaLog* old = shelf.ordered->old_log();
  if (shelf.old_sender == nullptr) {
    return;
  }
  if (old == nullptr || old->is_idle() || shelf.old_sender->is_lost()) {
    on_link_thread([&] { end(shelf, shelf.old_sender); });
    shelf.ordered->end_old_log();
  }
}

void ServedLinks::admit_and_fence(Shelf& shelf) {
  for (const ServedTeam::LostWorker& late : late_workers_) {
    admit(shelf, late);
  }
  for (const ServedTeam::LostWorker& lost : lost_workers_) {
    admit(shelf, lost);
    if (concerns(shelf, lost.rank)) {
      (void)fence(shelf, lost.incarnation);
    }
  }
}

void ServedLinks::promote(Shelf& shelf, std::optional<Rank> backup) {
  on_link_thread([&] { end_hearing(shelf); });
  shelf.follows = Ownership::kNobody;
  shelf.ordered->become_primary(backup);
  admit_and_fence(shelf);
  on_link_thread([&] { open_port(shelf); });
}

void ServedLinks::demote(Shelf& shelf, int primary) {
  stop_answering(shelf);
  if (shelf.number == 0) {
    lead_ = Lead::kept;  // by the other
  }
  shelf.hands_over = false;
  for (Fence& fence : fences_) {  // which its backup has
    std::erase_if(fence.positions, [&](const auto& at) { return at.first == &shelf; });
  }
  on_link_thread([&] {
    end(shelf, shelf.sender);
    end(shelf, shelf.copy_sender);
    end(shelf, shelf.old_sender);
  });
  shelf.ordered->become_backup();
  shelf.follows = primary;
  on_link_thread([&] { begin_to_hear(shelf, team_.rank_of_server(primary)); });
}

bool ServedLinks::is_left_by_its_primary(const Shelf& shelf, const Ownership& now) {
  const bool ended = shelf.receiver == nullptr || shelf.receiver->has_ended() || !now.lives(shelf.follows);
  return ended && (shelf.port == nullptr || shelf.port->is_quiet());
}

void ServedLinks::follow_who_is_due(const Ownership& now) {
  std::erase_if(due_to_follow_, [&](int number) {
    const Ownership::Holders& holders = now.of(number);
    if (holders.coming != team_.number()) {
      return true;
    }
    Shelf* shelf = find_shelf(number);
    if (shelf != nullptr && shelf->ordered != nullptr) {  // what it held before, or a copy of one who is lost
      if (!is_left_by_its_primary(*shelf, now)) {
        return false;
      }
      drop(*shelf);
    }
    begin_to_follow(number, holders.primary);
    return true;
  });
}

void ServedLinks::begin_to_follow(int number, int primary) {
  const std::vector<float> none(static_cast<std::size_t>(areas_.at(part_of(number))->table.size()));
  Shelf& made = make_shelf(number, none, {.replicated = true, .whole = false});
  made.follows = primary;
  on_link_thread([&] {
    begin_to_hear(made, team_.rank_of_server(primary));
    if (std::ranges::find(moving_, &made) == moving_.end()) {
      moving_.push_back(&made);
    }
  });
}

void ServedLinks::stop_answering(Shelf& shelf) {
  shelf.hands_over = true;
  shelf.open_port = nullptr;
  shelf.port->close();
}

void ServedLinks::answer_again(Shelf& shelf) {
  shelf.hands_over = false;
  admit_and_fence(shelf);
  shelf.port->open();
  shelf.open_port = shelf.port.get();
}

void ServedLinks::say_moved(Shelf& shelf, int primary, int backup) {
  if (Clock::now() - shelf.told_at < kBetweenTellings) {
    return;
  }
  shelf.told_at = Clock::now();
  team_.tell({.what = ServerHistory::What::moved,
              .shelf = shelf.number,
              .primary = team_.rank_of_server(primary),
              .backup = backup == Ownership::kNobody ? Rank{-1} : team_.rank_of_server(backup),
              .changes = held_->changes()});
}

void ServedLinks::take_step(Shelf& shelf, const Ownership& now) {
  const Ownership::Holders& holders = now.of(shelf.number);
  const Ownership::Step step = now.step(shelf.number);
  OrderedServer& ordered = *shelf.ordered;
  if (step != Ownership::Step::swap) {
    if (shelf.hands_over) {
      answer_again(shelf);
    }
    if (shelf.number == 0) {
      lead_ = Lead::kept;
    }
  }
  switch (step) {
    case Ownership::Step::none:
      return;
    case Ownership::Step::copy:
      if (holders.coming == Ownership::kNobody) {
        return;  // others come first
      }
      if (ReplicaLog* log = ordered.copying(); log != nullptr) {
        if (log->is_whole()) {
          say_moved(shelf, holders.primary, holders.coming);
        }
      } else if (const Rank to = team_.rank_of_server(holders.coming);
                 known_servers_.contains(to.value) && shelf.old_sender == nullptr) {
        ReplicaLog& copy = ordered.begin_copy(to);
        on_link_thread([&] { shelf.copy_sender = sender_of(shelf, copy); });
      }
      return;
    case Ownership::Step::swap:
      if (shelf.old_sender != nullptr || !may_hand_over(shelf)) {
        return;
      }
      if (!shelf.hands_over) {
        stop_answering(shelf);
      }
      if (ordered.log().is_idle()) {
        say_moved(shelf, holders.backup, holders.primary);
      }
      return;
    case Ownership::Step::drop:
      if (shelf.old_sender == nullptr) {
        say_moved(shelf, holders.primary, Ownership::kNobody);
      }
      return;
  }
}

void ServedLinks::let_go_of_the_rest(const Ownership& now) {
  const int self = team_.number();
  for (int number = 0; number < shelf_count(); ++number) {
    const Ownership::Holders& holders = now.of(number);
    Shelf* shelf = find_shelf(number);
    const bool held = holders.primary == self || holders.backup == self || holders.coming == self;
    if (shelf == nullptr || shelf->ordered == nullptr || held) {
      continue;
    }
    if (is_left_by_its_primary(*shelf, now)) {
      drop(*shelf);
    }
  }
}

std::unique_ptr<ReplicaSender> ServedLinks::sender_of(Shelf& shelf, ReplicaLog& log) {
  return std::make_unique<ReplicaSender>(*team_.fabric, log, view_of(shelf.number),
                                         [&shelf](Rank backup) { return shelf.sent_turns[backup.value]; });
}

void ServedLinks::end(Shelf& shelf, std::unique_ptr<ReplicaSender>& sender) {
  if (sender != nullptr && sender->backup()) {
    shelf.sent_turns[sender->backup()->value] = sender->next_turn();
  }
  sender.reset();
}

void ServedLinks::begin_to_hear(Shelf& shelf, Rank primary) {
  shelf.receiver = std::make_unique<ReplicaReceiver>(
      *team_.fabric, *shelf.ordered, primary, view_of(shelf.number), [this] { link_.wake(); },
      shelf.heard_turns[primary.value]);
}

void ServedLinks::end_hearing(Shelf& shelf) {
  if (shelf.receiver != nullptr) {
    shelf.heard_turns[team_.rank_of_server(shelf.follows).value] = shelf.receiver->end();
    shelf.receiver.reset();
  }
}

void ServedLinks::drop(Shelf& shelf) {
  on_link_thread([&] {
    end_hearing(shelf);
    if (shelf.port != nullptr) {
      shelf.port->detach();
    }
  });
  shelf.follows = Ownership::kNobody;
  const std::scoped_lock lock(shelves_mutex_);
  shelf.ordered.reset();
  shelf.server.reset();
}

void ServedLinks::tell_of_copies(const Ownership& now) {
  const int self = team_.number();
  std::set<int> primaries;  // of which something has just come
  for (int number = 0; number < shelf_count(); ++number) {
    if (held_->of(number).coming == self && now.of(number).backup == self) {
      primaries.insert(now.of(number).primary);
    }
  }
  for (int number = 0; number < shelf_count(); ++number) {
    if (now.next_copy(number) == self) {
      primaries.erase(now.of(number).primary);  // there is more to come
    }
  }
  const std::scoped_lock lock(shelves_mutex_);
  for (const int primary : primaries) {
    news_.push_back(
        fmt::format("{} has its copy of what {} holds", team_.name_of_server(self), team_.name_of_server(primary)));
  }
}

void ServedLinks::tell_idle(const Ownership& now) {
  if (now.leader() != team_.number()) {
    return;
  }
  for (const int server : now.living()) {
    if (!now.leaves(server) && !now.holds_something(server) && idle_told_.insert(server).second) {
      const std::scoped_lock lock(shelves_mutex_);
      news_.push_back(
          fmt::format("{} has nothing to hold: the parameters are few, and move in {} shelf{}; 'train --shelves 12' "
                      "makes more of them",
                      team_.name_of_server(server), shelf_count(), shelf_count() == 1 ? "" : "s"));
    }
  }
}

void ServedLinks::tell_shares(const Ownership& now) {
  const std::uint64_t moved = bytes_moved(now);
  const std::uint64_t fresh = moved - std::exchange(told_bytes_, moved);
  if (fresh == 0 || now.leader() != team_.number()) {
    return;
  }
  std::map<int, std::int64_t> answered;  // bytes, by server
  std::int64_t all = 0;
  std::int64_t held = 0;
  for (int number = 0; number < shelf_count(); ++number) {
    const std::int64_t bytes = bytes_of(number);
    answered[now.of(number).primary] += bytes;
    all += bytes;
    held += now.of(number).backup == Ownership::kNobody ? bytes : 2 * bytes;
  }
  const auto percent = [](auto part, auto whole) {
    return 100 * static_cast<double>(part) / static_cast<double>(whole);
  };
  std::string shares;
  for (const auto& [server, bytes] : answered) {
    shares +=
        fmt::format("{}{} {:.0f} %", shares.empty() ? "" : ", ", team_.name_of_server(server), percent(bytes, all));
  }
  const std::scoped_lock lock(shelves_mutex_);
  news_.push_back(fmt::format("parameters are shared out anew: {}; {} were copied, {:.0f} % of all that {}s hold",
                              shares, bytes_text(fresh), percent(fresh, held), team_.kind_of_server()));
}

/// To be told once for all shelves of which it is true.
void ServedLinks::tell_news(const Ownership& now) {
  std::set<std::string> lines;
  for (int number = 0; number < shelf_count(); ++number) {
    const Ownership::Holders before = held_->of(number);
    const Ownership::Holders after = now.of(number);
    const bool lost_primary = !now.lives(before.primary);
    const bool lost_backup = before.backup != Ownership::kNobody && !now.lives(before.backup);
    if (after.primary == Ownership::kNobody || before.primary == Ownership::kNobody || !(lost_primary || lost_backup)) {
      continue;
    }
    const int next = now.next_copy(number);
    const std::string copied = next == Ownership::kNobody
                                   ? fmt::format("there is no other {} to hold a copy of it", team_.kind_of_server())
                                   : fmt::format("{} gets a copy of it", team_.name_of_server(next));
    const std::string primary = team_.name_of_server(after.primary);
    lines.insert(lost_primary ? fmt::format("{} goes on with what {} held: {}", primary,
                                            team_.name_of_server(before.primary), copied)
                              : fmt::format("what {} holds has lost its copy: {}", primary, copied));
  }
  const std::scoped_lock lock(shelves_mutex_);
  news_.insert(news_.end(), lines.begin(), lines.end());
}

}  // namespace distbelief
