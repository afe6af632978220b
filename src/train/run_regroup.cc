// What a team does when a member is lost or comes: those who are there form a new group of the next view and go on from
// memory.
//
// A member makes an update only when all gradients of a step are summed, so those who live stand after step s - 1 or
// after s, or are in the middle of s, which counts as s - 1. The *point* of a member is all that it takes to go on from
// where it stands: values, the strategy's state, the ledger, place and sums. In the new group each tells how far its
// point is; all take that of the one furthest on, so that a finished step is never lost, and one that nobody finished
// is made again: its samples are handed out anew. Strategies whose members are together now and then keep a copy of
// their last common point, and go back to it.
//
// Nothing of a member is overwritten before it has a whole new point, so that whoever dies in between, the next view
// finds all others as they were.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <sstream>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "metrics/machine.h"
#include "train/trainer_run.h"

namespace distbelief {
namespace {

/// What each tells of its point: whether it has one, step, epoch, and how the run has ended for it, if it has.
constexpr std::size_t kPlaceNumbers = 4;
constexpr std::array<std::string_view, 5> kEnds = {"", "finished", "stopped early", "interrupted", "diverged"};
constexpr const char* kPlace = "place";
constexpr const char* kMembers = "members";

std::string rows_text(const LastRows& rows) {
  Json list = Json::array();
  for (const auto& [number, row] : rows) {
    list.push_back(
        {{"number", number}, {"step", row.step}, {"epoch", row.epoch}, {"time", row.time}, {"values", row.values}});
  }
  return json_text(list);
}

LastRows rows_from(const std::string& text) {
  LastRows rows;
  for (const Json& entry : parse_json(text)) {
    MetricsRow row = {.step = entry.at("step"), .epoch = entry.at("epoch"), .time = entry.at("time"), .values = {}};
    for (const Json& value : entry.at("values")) {
      const bool known = !value.at(1).is_null();  // JSON has no NaN
      row.values.emplace_back(value.at(0).get<std::string>(), known ? value.at(1).get<double>() : std::nan(""));
    }
    rows.emplace_back(entry.at("number").get<std::int64_t>(), std::move(row));
  }
  return rows;
}

}  // namespace

std::uint64_t Trainer::Run::ending_number(const std::string& ending) {
  return static_cast<std::uint64_t>(std::ranges::find(kEnds, ending) - kEnds.begin());
}

std::string Trainer::Run::ending_text(std::uint64_t number) {
  return std::string(kEnds[std::min<std::uint64_t>(number, kEnds.size() - 1)]);
}

void Trainer::Run::remember_common() {
  if (team.next && !strategy->in_step() && strategy->holds_state()) {
    if (!common || common->state.step != state.step || common->state.epoch != state.epoch) {
      common = CommonPoint{CarriedState::of(*replica, *strategy), state, ledger.save(), epochs_text(later_epochs),
                           last_rows};
    }
  }
}

std::optional<CommonPoint> Trainer::Run::own_point() {
  if (strategy == nullptr) {
    return std::nullopt;
  }
  if (!strategy->in_step()) {
    return std::exchange(common, std::nullopt);
  }
  if (!joined || !strategy->holds_state()) {
    return std::nullopt;
  }
  return CommonPoint{CarriedState::of(*replica, *strategy), state, ledger.save(), epochs_text(later_epochs), last_rows};
}

bool Trainer::Run::regroup(std::uint32_t after) {
  if (!team.next) {
    return false;
  }
  doing(WorkerActivity::Kind::meeting);
  if (is_cut()) {
    return regroup_parts(after);
  }
  if (!joined && team.leads()) {
    joined = true;  // what the others were to get from it is still there
    remember_common();
  }
  std::optional<CommonPoint> point = own_point();
  for (;;) {
    const std::optional<NextTeam> next = team.next(after);
    if (!next) {
      common = std::move(point);
      return false;
    }
    after = next->epoch;
    if (!admit(*next, after)) {
      continue;
    }
    auto group = std::make_unique<Group>(team.group->fabric(), next->members, next->epoch);
    Agreement agreement = agree_on_point(*group, point);
    if (!agreement.somebody_knows) {
      observer.note(joined ? "nobody who is left knows the optimizer's state: it died with those who kept it"
                           : "nobody who is left knows what training goes on from: it ended with those who did");
      given_up = team.late && !joined;  // what came of the run, others know
      return false;
    }
    if (!agreement.outcome.ok()) {
      groups.push_back(std::move(group));
      continue;  // the next view tells who was lost now
    }
    strategy.reset();  // it borrows the group before
    groups.push_back(std::move(group));
    team.group = groups.back().get();
    if (team.formed) {
      team.formed(next->epoch);
    }
    const std::uint64_t ended = state.epoch;
    ending = agreement.ending;
    go_on_from(*agreement.point);
    note_changes(agreement.before);
    common.reset();
    remember_common();  // with who was lost on the way here
    if (team.leads() && folder && state.epoch == ended + 1) {
      observer.epoch_ended(state.last);  // which it was kept from telling
    }
    return !team.leads() || open_files();
  }
}

bool Trainer::Run::admit(const NextTeam& next, std::uint32_t& after) const {
  if (!team.admit) {
    return true;
  }
  const std::optional<std::uint32_t> others = team.admit(next);
  if (!others) {
    return false;  // the next view is without who could not be reached
  }
  if (*others > next.epoch) {
    after = *others - 1;
    return false;
  }
  return true;
}

Trainer::Run::Agreement Trainer::Run::agree_on_point(Group& group, std::optional<CommonPoint>& own) {
  const Clock::time_point deadline = Clock::now() + team.patience;
  std::vector<std::uint64_t> told(kPlaceNumbers * static_cast<std::size_t>(group.size()));
  const auto place_of = [&](int position) {
    return std::span(told).subspan(kPlaceNumbers * static_cast<std::size_t>(position), kPlaceNumbers);
  };
  if (own) {
    const std::span<std::uint64_t> mine = place_of(group.position());
    mine[0] = 1;
    mine[1] = static_cast<std::uint64_t>(own->state.step);
    mine[2] = own->state.epoch;
  }
  place_of(group.position())[3] = ending_number(ending);
  Agreement agreement;
  agreement.outcome = group.all_gather(told, deadline);
  if (!agreement.outcome.ok()) {
    return agreement;
  }
  for (int position = 0; position < group.size(); ++position) {
    const std::string end = ending_text(place_of(position)[3]);
    agreement.ending = end.empty() ? agreement.ending : end;
  }
  int source = 0;
  for (int position = 1; position < group.size(); ++position) {
    const auto key = [&](int of) { return std::tuple(place_of(of)[0], place_of(of)[1], place_of(of)[2]); };
    source = key(position) > key(source) ? position : source;
  }
  if (place_of(source)[0] == 0) {
    agreement.somebody_knows = false;
    return agreement;
  }
  CommonPoint staged;
  CommonPoint& shared = group.position() == source ? *own : staged;
  agreement.outcome = share_place(group, source, shared, agreement.before, deadline);
  if (agreement.outcome.ok()) {
    agreement.outcome = shared.carried.share(group, source, deadline);
  }
  if (agreement.outcome.ok()) {
    agreement.point = std::move(shared);
  }
  return agreement;
}

Outcome Trainer::Run::share_place(Group& group, int source, CommonPoint& point, std::vector<Rank>& before,
                                  Clock::time_point deadline) {
  std::string text, rows;
  if (group.position() == source) {
    std::map<std::string, std::vector<std::uint64_t>> numbers;
    const TrainingState& here = point.state;
    numbers[kPlace] = {static_cast<std::uint64_t>(here.step), here.epoch, here.position,
                       static_cast<std::uint64_t>(checkpointed_step + 1)};
    for (const Rank rank : team.group->members()) {
      numbers[kMembers].push_back(static_cast<std::uint64_t>(rank.value));
    }
    text = state_text(here, numbers);
    rows = rows_text(point.rows);
  }
  for (std::string* piece : {&text, &rows, &point.ledger, &point.later}) {
    if (Outcome outcome = share_text(group, source, *piece, deadline); !outcome.ok()) {
      return outcome;
    }
  }
  std::map<std::string, std::vector<std::uint64_t>> numbers;
  parse_state(text, "the message of a member that is left", point.state, numbers);
  const std::vector<std::uint64_t>& place = numbers.at(kPlace);
  point.state.step = static_cast<std::int64_t>(place.at(0));
  point.state.epoch = place.at(1);
  point.state.position = place.at(2);
  point.rows = rows_from(rows);
  checkpointed_step = static_cast<std::int64_t>(place.at(3)) - 1;
  before.clear();
  for (const std::uint64_t rank : numbers.at(kMembers)) {
    before.push_back(Rank{static_cast<int>(rank)});
  }
  return {};
}

void Trainer::Run::go_on_from(CommonPoint& point) {
  state = point.state;
  last_rows = point.rows;
  ledger.restore(point.ledger, "the message of a member that is left");
  later_epochs = epochs_from(point.later, "the message of a member that is left");
  size_up();
  keep_place_in_schedule();
  strategy = make_strategy();
  point.carried.give(*replica, *strategy);
  joined = true;
  team.spare = false;
}

void Trainer::Run::note_changes(const std::vector<Rank>& before) {
  const std::vector<Rank>& now = team.group->members();
  const auto is_in = [](Rank rank, const std::vector<Rank>& ranks) {
    return std::ranges::find(ranks, rank) != ranks.end();
  };
  std::vector<Rank> changed;
  std::ranges::copy_if(before, std::back_inserter(changed), [&](Rank rank) { return !is_in(rank, now); });
  std::ranges::copy_if(now, std::back_inserter(changed), [&](Rank rank) { return !is_in(rank, before); });
  std::string text;
  for (const Rank rank : changed) {
    const bool came = is_in(rank, now);
    std::optional<MemberNews> news = team.news_of(rank);
    if (!news && !came) {  // it was lost before this member came
      news = MemberNews{fmt::format("worker {}", rank.value), "was lost"};
    }
    if (!news || (!came && news->why.empty() && !ending.empty())) {
      continue;  // it was done
    }
    const TeamEvent::What what = came                ? TeamEvent::What::joined
                                 : news->why.empty() ? TeamEvent::What::left
                                                     : TeamEvent::What::lost;
    state.events.push_back({what, news->who, news->why, state.step});
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", news->who,
                        what == TeamEvent::What::lost ? news->why : name_of(what));
  }
  if (team.leads() && !text.empty()) {
    observer.note(fmt::format("{}: {} after step {}", text,
                              team.size() == 1 ? "one worker goes on" : fmt::format("{} workers go on", team.size()),
                              state.step));
  }
}

bool Trainer::Run::ended_together(const RunSummary& summary) {
  if (team.leads()) {
    observer.ended(summary);
  }
  return team.group->barrier(Clock::now() + team.patience).ok();
}

bool Trainer::Run::led_by_others() const {
  if (!folder || team.group == nullptr || !std::filesystem::exists(folder->leader())) {
    return false;
  }
  std::uint32_t epoch = 0;
  std::istringstream(read_file(folder->leader())) >> epoch;
  return epoch > team.group->epoch();
}

void Trainer::Run::claim_folder() {
  try {
    write_file_atomically(folder->leader(), fmt::format("{}\n", team.group->epoch()));
    unclaimed = false;
  } catch (const FileError&) {
    unclaimed = true;  // as long as the disk is full
  }
}

bool Trainer::Run::open_files() {
  const bool takes_over = !folder;
  if (takes_over) {
    if (!std::filesystem::exists(std::filesystem::path(config.out) / "run.yaml")) {
      observer.note(fmt::format("the worker that led is lost, and this host does not see {}", config.out));
      return false;
    }
    folder.emplace(RunFolder::open(config.out));
    claim_folder();
    observer.takes_over();
  }
  if (takes_over || metrics->rows() != state.metrics_rows) {
    metrics.reset();
    metrics.emplace(MetricsLog::resume(folder->metrics(), state.metrics_rows));
    try {
      for (const auto& [number, row] : last_rows) {  // what the leader before died with
        if (number == metrics->rows() + 1) {
          metrics->append(row);
        }
      }
    } catch (const FileError&) {
      // a full disk, of which the next row tells
    }
    state.metrics_rows = metrics->rows();
    events = std::make_unique<EventFile>(folder->path(), this_machine().host, wall_clock(), state.step);
  }
  if (part) {
    return true;  // all parts write the one below together
  }
  // The leader may not have come to write the one that the others count on.
  write_checkpoint(state.best_step == state.step ? std::optional(state.best_score) : std::nullopt);
  return true;
}

}  // namespace distbelief
