// How a job grows and shrinks whose network is cut over several workers: by whole copies of the network, or by somebody
// who takes the place of a worker that leaves. Who comes is a standby until there are enough for a copy, so that nobody
// waits for processes that start. Which worker holds what only they know: a view says who shall leave, or how many
// shall go on, and those who meet in it find out what that means.
#include <fmt/format.h>

#include <algorithm>

#include "cluster/coordinator_state.h"

namespace distbelief {
namespace {

constexpr std::chrono::milliseconds kViewDelayOfWishes{10};
/// That are kept for deaths, and for what follows from a wish.
constexpr std::uint64_t kViewsKept = 8;

constexpr const char* kTooManyChanges = "who is in the job has changed too often: stop it, and go on with --resume";

}  // namespace

bool CoordinatorState::bears_changes() const {
  return rules_.most_views == 0 || view_number_ + kViewsKept <= rules_.most_views;
}

bool CoordinatorState::waits_for_a_copy(const Record& record) const {
  const bool fills_gap = missing_copies_ > 0 && record.info.role == Role::standby;
  return (record.grows || fills_gap) && record.living() && !record.leaving;
}

std::vector<Record*> CoordinatorState::waiting_newcomers() {
  std::vector<Record*> waiting;
  for (auto& [id, record] : roster_.records()) {
    if (waits_for_a_copy(record) && record.connection != ConnectionId{}) {
      waiting.push_back(&record);
    }
  }
  return waiting;
}

std::string CoordinatorState::missing_for_a_copy(std::size_t waiting) const {
  const int missing = rules_.parts - static_cast<int>(waiting);
  return missing <= 0
             ? ""
             : fmt::format("{} more {} needed for another copy of the network", missing, missing == 1 ? "is" : "are");
}

void CoordinatorState::newcomer_came(Record& newcomer, bool was_started) {
  if (starting_ > 0 && was_started) {  // it was started in a dead worker's place
    expect_one_less(Role::worker);
    call(newcomer, "it takes the place of a worker that died");
    return;
  }
  if (was_started) {
    expect_one_less(Role::worker);
  }
  if (const std::string missing = missing_for_a_copy(waiting_newcomers().size()); !missing.empty()) {
    const std::string text = fmt::format("{} waits: {}", describe(newcomer.info), missing);
    log(text);
    tell_people(text, newcomer.info.id);
  }
}

void CoordinatorState::look_for_copies() {
  if (rules_.copies_come_whole() && phase_ == Phase::running) {
    call_whole_copies();
    return;
  }
  if (!rules_.workers_hold_parts() || phase_ != Phase::running || awaited() > 0 || !bears_changes()) {
    return;
  }
  std::vector<Record*> waiting = waiting_newcomers();
  if (std::ssize(waiting) < rules_.parts) {
    return;
  }
  waiting.resize(static_cast<std::size_t>(rules_.parts));
  const std::string text = fmt::format("{} that waited make another copy of the network", waiting.size());
  for (Record* newcomer : waiting) {
    newcomer->makes_copy = true;
    call(*newcomer, text);
  }
  most_workers_ += most_workers_ > 0 ? rules_.parts : 0;
  log(text);
  tell_people(text);
}

control::OrderAnswer CoordinatorState::order_part_to_leave(Record& worker) {
  control::OrderAnswer answer;
  if (worker.leaving) {
    answer.set_accepted(true);
    answer.set_text(fmt::format("{} was asked to leave before", describe(worker.info)));
    return answer;
  }
  if (!bears_changes()) {
    answer.set_text(kTooManyChanges);
    return answer;
  }
  const int staying = roster_.staying(Role::worker);
  const bool has_successor = call_standby(worker);
  if (!has_successor && (most_workers_ > 0 ? std::min(most_workers_, staying) : staying) <= rules_.parts) {
    answer.set_text(fmt::format(
        "{} holds a part of the last copy of the network, and nobody waits to take its place: add one with 'distbelief "
        "join', or stop the job, and go on with --resume",
        describe(worker.info)));
    return answer;
  }
  worker.leaving = true;
  unsaved_ = true;
  if (!has_successor) {
    change_view(fmt::format("{} is to leave", describe(worker.info)), kViewDelayOfWishes);
  }
  answer.set_accepted(true);
  answer.set_text(
      fmt::format("{} was asked to leave: {}", describe(worker.info),
                  has_successor ? "who waited takes its place" : "the others of its copy of the network end too"));
  return answer;
}

std::string CoordinatorState::scale_copies(int wanted, std::string& done) {
  const auto called = static_cast<int>(std::ranges::count_if(roster_.records(), [](const auto& entry) {
    const Record& record = entry.second;
    return record.makes_copy && record.leaving && record.state != Record::State::lost;
  }));
  // Who is no part of a whole copy, with those who come in the places of the dead, is about to end.
  const int copies_now = (roster_.staying(Role::worker) + awaited() - called) / rules_.parts;
  const int workers = most_workers_ > 0 ? most_workers_ : copies_now * rules_.parts;
  const int coming = called + static_cast<int>(waiting_newcomers().size()) + starting_newcomers_;
  if (wanted > workers) {
    const int missing = wanted - workers - coming;
    done = missing <= 0 ? ""
                        : fmt::format("{} workers → {}: {}", workers, wanted,
                                      missing == 1 ? "one is started" : fmt::format("{} are started", missing));
    return missing <= 0 ? "" : have_started(missing, 0);
  }
  if (wanted == workers) {
    return {};
  }
  if (!bears_changes()) {
    return kTooManyChanges;
  }
  if (awaited() > 0 || roster_.staying(Role::worker) != roster_.living(Role::worker)) {
    return "others are about to come or to leave: try again when they have";
  }
  most_workers_ = wanted;
  const int copies = (workers - wanted) / rules_.parts;
  done = fmt::format("{} workers → {}: {}", workers, wanted,
                     copies == 1 ? "one copy of the network leaves" : fmt::format("{} copies leave", copies));
  change_view("fewer workers are wanted", kViewDelayOfWishes);
  return {};
}

void CoordinatorState::review_wishes() {
  if (!rules_.workers_hold_parts() || awaited() > 0) {
    return;
  }
  if (roster_.living(Role::worker) <= most_workers_) {
    most_workers_ = 0;
  }
  if (roster_.staying(Role::worker) >= rules_.parts) {
    return;
  }
  for (auto& [id, record] : roster_.records()) {
    if (record.info.role == Role::worker && record.living() && record.leaving) {
      record.leaving = false;
      const std::string text = fmt::format("{} stays: nobody is there to take its place", describe(record.info));
      log(text);
      tell_people(text);
    }
  }
}

}  // namespace distbelief
