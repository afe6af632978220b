// Who takes the place of a worker that died: a standby, or else a process that the launcher starts, which it may do for
// servers too. Where workers hold parts of a network, those who are left wait for it: every view says for how many.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cluster/coordinator_state.h"

namespace distbelief {
namespace {

constexpr std::chrono::milliseconds kViewDelayWithoutReplacement{10};

}  // namespace

void CoordinatorState::replace(const Record& lost) {
  const bool may_come = rules_.takes_late_members || rules_.workers_hold_parts();
  const bool goes_anyway =
      rules_.workers_hold_parts() && lost.leaving;  // with its copy, or somebody was called already
  if (phase_ == Phase::running && may_come && !goes_anyway && !call_standby(lost)) {
    (void)start_replacement(lost);
  }
}

bool CoordinatorState::call_standby(const Record& lost) {
  const auto is_free = [](const Record& record) {
    return record.info.role == Role::standby && record.connection != ConnectionId{} && !record.leaving;
  };
  Record* found = nullptr;  // who waits for nothing else, before who waits to make a copy of the network
  for (auto& [id, record] : roster_.records()) {
    if (is_free(record) && (found == nullptr || (found->grows && !record.grows))) {
      found = &record;
    }
  }
  if (found == nullptr) {
    return false;
  }
  const std::string text = fmt::format("{} takes the place of {}", describe(found->info), describe(lost.info));
  call(*found, text);
  log(text);
  tell_people(text);
  return true;
}

void CoordinatorState::call(Record& standby, const std::string& why) {
  standby.leaving = true;
  standby.expected_until = now_ + rules_.replacement_limit;
  unsaved_ = true;
  control::Order order;
  order.set_what(control::Order::TAKE_OVER);
  order.set_term(term_);
  order.set_reason(why);
  order.set_rank(standby.called_rank);
  tell(standby, order);
}

bool CoordinatorState::start_replacement(const Record& lost) {
  return start_in_place_of(describe(lost.info), Role::worker);
}

bool CoordinatorState::start_in_place_of(const std::string& lost, Role role) {
  if (restarts_used_ >= rules_.restarts) {
    return false;
  }
  const std::string text = fmt::format("{} is replaced ({} of {} restarts)", lost.empty() ? "one that died" : lost,
                                       restarts_used_ + 1, rules_.restarts);
  const bool is_server = role == Role::server;
  if (!tell_to_start(is_server ? 0 : 1, is_server ? 1 : 0, text)) {
    return false;
  }
  ++(is_server ? starting_servers_ : rules_.copies_come_whole() ? starting_newcomers_ : starting_);
  ++restarts_used_;
  log(text);
  tell_people(text);
  return true;
}

void CoordinatorState::start_missing_servers() {
  while (phase_ == Phase::running && starting_servers_ < missing_servers_ && !staying_servers().empty() &&
         start_in_place_of(lost_server_, Role::server)) {
  }
}

int CoordinatorState::awaited() const {
  if (rules_.copies_come_whole()) {
    return awaited_for_a_copy();
  }
  if (!rules_.workers_hold_parts() || phase_ != Phase::running) {
    return 0;
  }
  const auto called = std::ranges::count_if(roster_.records(), [](const auto& entry) {
    const Record& record = entry.second;
    return record.info.role == Role::standby && record.leaving && record.state != Record::State::lost;
  });
  return starting_ + static_cast<int>(called);
}

bool CoordinatorState::was_called(const control::Join& join) {
  const auto is_it = [&](const auto& entry) {
    const Record& record = entry.second;
    return record.info.role == Role::standby && record.leaving && record.state != Record::State::lost &&
           record.info.host == join.host() && record.info.pid == join.pid() && record.called_rank == join.rank();
  };
  const auto standby = std::ranges::find_if(roster_.records(), is_it);
  if (standby == roster_.records().end()) {
    return false;
  }
  standby->second.leaving = false;
  return true;
}

void CoordinatorState::replacement_failed(Record& standby, const std::string& why) {
  if (rules_.copies_come_whole()) {
    will_not_come(standby, why);
    return;
  }
  standby.leaving = false;
  unsaved_ = true;
  if (standby.makes_copy) {
    (void)call_standby(standby);  // nobody is started for it
  } else {
    replace(standby);
  }
  if (rules_.workers_hold_parts()) {
    change_view(fmt::format("{} {}", describe(standby.info), why), kViewDelayWithoutReplacement);
  }
}

void CoordinatorState::look_for_replacements() {
  if (phase_ == Phase::running && starting_newcomers_ + starting_servers_ > 0 &&
      now_ - starting_since_ >= rules_.join_limit) {
    const std::string text = fmt::format("a process that was started has not come within {:.0f} s",
                                         std::chrono::duration<double>(rules_.join_limit).count());
    starting_newcomers_ = starting_servers_ = 0;
    unsaved_ = true;
    log(text);
    tell_people(text);
  }
  if (rules_.copies_come_whole()) {
    look_for_who_does_not_come();
    return;
  }
  if (awaited() == 0) {
    return;
  }
  const std::string late =
      fmt::format("did not come within {:.0f} s", std::chrono::duration<double>(rules_.replacement_limit).count());
  std::vector<Record*> missing;
  for (auto& [id, record] : roster_.records()) {
    if (record.info.role == Role::standby && record.leaving && record.state != Record::State::lost &&
        now_ >= record.expected_until) {
      missing.push_back(&record);
    }
  }
  for (Record* standby : missing) {
    const std::string text = fmt::format("{} {}", describe(standby->info), late);
    log(text);
    tell_people(text);
    replacement_failed(*standby, late);
  }
  if (starting_ > 0 && now_ - starting_since_ >= rules_.replacement_limit) {
    const std::string text = "the process that was started in a dead worker's place " + late;
    starting_ = 0;
    log(text);
    tell_people(text);
    change_view(text, kViewDelayWithoutReplacement);
  }
}

}  // namespace distbelief
