// Jobs whose servers hold a network that is cut. Copies of it need nothing from each other, as servers have all there
// is to know, and leases of one that is gone go to others. So copies come and go whole: one that loses a worker is
// given up, and what is left of it joins again, as standbys. As soon as enough of those, of newcomers and of standbys
// wait, they are called as another copy, with ranks of their own: its first is a multiple of `parts`, as everywhere.
#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "cluster/coordinator_state.h"

namespace distbelief {

void CoordinatorState::on(Record& record, const control::Measured& measured) {
  if (!may_serve(record)) {
    misbehaves(record, "Measured");
    return;
  }
  unsaved_ = true;
  shares_ = measured.shares();
}

void CoordinatorState::break_copy_of(const Record& lost) {
  if (phase_ != Phase::running) {
    return;
  }
  const bool leaves = lost.leaving;
  const bool is_missed = !leaves && lost.reason != kNeverBegan;
  if (is_missed && !lost.may_come_again) {
    lost_worker_ = describe(lost.info);
  }
  const int copy = lost.info.rank.value / rules_.parts;
  if (!broken_copies_.insert(copy).second) {
    return;  // by one of its workers that was lost before
  }
  missing_copies_ += is_missed ? 1 : 0;
  for (Record* mate : workers_of_copy(copy)) {
    declare_lost(*mate,
                 fmt::format("is of no use without {}, which holds another part of its copy of the network",
                             describe(lost.info)),
                 !leaves);
  }
}

std::vector<Record*> CoordinatorState::workers_of_copy(int copy) {
  std::vector<Record*> workers;
  for (auto& [id, record] : roster_.records()) {
    if (record.info.role == Role::worker && record.living() && record.info.rank.value / rules_.parts == copy) {
      workers.push_back(&record);
    }
  }
  return workers;
}

bool CoordinatorState::is_expected(const Record& record) {
  const bool is_called = record.info.role == Role::standby && record.leaving && record.state != Record::State::lost;
  return is_called || record.may_come_again;
}

Clock::time_point CoordinatorState::time_to_come(const Record& record) const {
  if (record.connection != ConnectionId{}) {
    return now_ + rules_.replacement_limit;
  }
  return std::max(now_ + rules_.reconnect_limit, grace_until_.value_or(now_));  // it may be dead, too
}

int CoordinatorState::who_will_wait() const {
  const auto count = std::ranges::count_if(roster_.records(), [this](const auto& entry) {
    const Record& record = entry.second;
    const bool was_called_in_vain = is_expected(record) && broken_copies_.contains(record.called_rank / rules_.parts);
    return waits_for_a_copy(record) || record.may_come_again || was_called_in_vain;
  });
  return static_cast<int>(count) + starting_newcomers_;
}

int CoordinatorState::who_may_make_copies() const {
  const auto count = std::ranges::count_if(roster_.records(), [this](const auto& entry) {
    return waits_for_a_copy(entry.second) || is_expected(entry.second);
  });
  return static_cast<int>(count) + starting_newcomers_;
}

int CoordinatorState::who_may_be_started() const {
  const int restarts = roster_.living(Role::launcher) > 0 ? rules_.restarts - restarts_used_ : 0;
  return std::max(0, std::min(restarts, missing_copies_ * rules_.parts - who_will_wait()));
}

void CoordinatorState::start_missing_workers() {
  while (phase_ == Phase::running && !is_done() && who_will_wait() < missing_copies_ * rules_.parts &&
         start_in_place_of(lost_worker_, Role::worker)) {
    if (without_workers_since_) {
      without_workers_since_ = now_;  // it needs its time
    }
  }
}

bool CoordinatorState::came_again(const control::Join& join) {
  for (auto& [id, record] : roster_.records()) {
    if (record.may_come_again && record.info.host == join.host() && record.info.pid == join.pid()) {
      record.may_come_again = false;
      return true;
    }
  }
  return false;
}

void CoordinatorState::will_not_come(Record& record, const std::string& why) {
  unsaved_ = true;
  lost_worker_ = describe(record.info);
  if (std::exchange(record.may_come_again, false)) {
    return;
  }
  // A standby that was called: the copy that it was to be in will not be.
  record.leaving = false;
  const int copy = record.called_rank / rules_.parts;
  if (phase_ == Phase::running && broken_copies_.insert(copy).second) {
    ++missing_copies_;
    for (Record* mate : workers_of_copy(copy)) {
      declare_lost(*mate, fmt::format("is of no use without {}, which {}", describe(record.info), why), true);
    }
  }
}

void CoordinatorState::look_for_who_does_not_come() {
  if (phase_ != Phase::running) {
    return;
  }
  std::vector<Record*> missing;
  for (auto& [id, record] : roster_.records()) {
    const bool is_gone = record.may_come_again && look_for_process(record) == ProcessSight::gone;
    if (is_expected(record) && (is_gone || now_ >= record.expected_until)) {
      missing.push_back(&record);
    }
  }
  for (Record* record : missing) {
    const std::string why = record->may_come_again ? "did not come again" : "did not come in time";
    const std::string text = fmt::format("{} {}", describe(record->info), why);
    log(text);
    tell_people(text);
    will_not_come(*record, why);
  }
}

void CoordinatorState::call_whole_copies() {
  std::vector<Record*> waiting = waiting_newcomers();
  while (std::ssize(waiting) >= rules_.parts) {
    // Who waits for nothing else first: a standby may be needed again.
    std::stable_partition(waiting.begin(), waiting.end(), [](const Record* record) { return record->grows; });
    const int first = roster_.reserve(rules_.parts);
    const std::string text = fmt::format("{} that waited make {} copy of the network", rules_.parts,
                                         missing_copies_ > 0 ? "another" : "one more");
    for (int i = 0; i < rules_.parts; ++i) {
      Record& newcomer = *waiting[static_cast<std::size_t>(i)];
      newcomer.called_rank = first + i;
      call(newcomer, text);
    }
    missing_copies_ -= missing_copies_ > 0 ? 1 : 0;
    log(text);
    tell_people(text);
    waiting = waiting_newcomers();
  }
}

bool CoordinatorState::is_done() const {
  return std::ranges::any_of(roster_.records(), [](const auto& entry) {
    const Record& record = entry.second;
    return record.info.role == Role::worker && record.state == Record::State::left && record.reason == kAllDone;
  });
}

int CoordinatorState::awaited_for_a_copy() const {
  const int coming = who_may_make_copies() + who_may_be_started();
  const bool in_time = !without_workers_since_ || now_ - *without_workers_since_ < rules_.replacement_limit;
  const bool lacks_all = phase_ == Phase::running && view_number_ > 0 && roster_.living(Role::worker) == 0;
  const bool may_go_on = missing_copies_ > 0 || std::ranges::any_of(roster_.records(), [](const auto& entry) {
                           return entry.second.info.role == Role::standby && is_expected(entry.second);
                         });
  return lacks_all && !is_done() && may_go_on && in_time && coming >= rules_.parts && roster_.living(Role::server) > 0
             ? coming
             : 0;
}

}  // namespace distbelief
