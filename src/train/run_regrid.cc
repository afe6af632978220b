// What a team does whose network is cut, when a worker is lost. Those who live meet in the next view and tell where
// they stand and which part they have. regrid() says who goes on: every copy that is whole, and what can be made whole
// of the rest.
//
// They go on after a step, or from another common point, of which somebody who lives has each part. Mostly all have: an
// update is made only when all workers have all that theirs needs (GroupOptions::commit), so if one of those who live
// has made it, the others can make it too; if none has, all leave it out, and it is made again. Where copies are
// together now and then only, each keeps its last common point until all know that the next one is whole. Who has its
// part, but not as after that step, or, with RootUpdate, not the optimizer's state, gets both from another copy.
//
// Who has come, in the place of a dead worker or for one more copy, has no part yet. It hears from the others how the
// network is cut, and gets the part that is missing, with its optimizer state, from who has the same part of another
// copy.
//
// The same is done after a finished step when others have come, some are to leave, or fewer copies are wanted. Who
// leaves meets the others too, may have to hand over its part, and ends like anybody who is left over.
//
// When nobody who lives has some part, or the state was not shared out yet, the network comes from the newest
// checkpoint, cut so that it fits those who live: see Trainer::Run::go_back().
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/check.h"
#include "train/model_cut.h"
#include "train/part_epochs.h"
#include "train/trainer_run.h"

namespace distbelief {
namespace {

/// A stand as numbers, to be told.
enum StandNumber : std::size_t { kKnows, kStep, kEpoch, kPrepared, kPart, kCopy, kGeneration, kEnding, kStandNumbers };

bool contains_rank(const std::vector<Rank>& ranks, Rank rank) { return std::ranges::find(ranks, rank) != ranks.end(); }

bool has_part(const PartStand& stand) { return stand.part != kNoPart; }

}  // namespace

std::string workers_end_text(const std::vector<Rank>& ranks) {
  std::string numbers;
  for (const Rank rank : ranks) {
    numbers += fmt::format("{}{}", numbers.empty() ? "" : ", ", rank.value);
  }
  return ranks.size() == 1 ? fmt::format("worker {} ends", numbers) : fmt::format("workers {} end", numbers);
}

PartStand Trainer::Run::own_stand() const {
  PartStand own = {.step = state.step,
                   .epoch = state.epoch,
                   .part = kNoPart,
                   .generation = generation,
                   .ending = ending_number(ending)};
  if (!has_place()) {
    return own;
  }
  own.part = grid_place.stage * grid.tensor + grid_place.tensor;
  own.copy = grid_place.replica;
  const bool has_all = joined && strategy->holds_state();
  if (strategy->in_step()) {
    own.knows = has_all;
    own.prepared = strategy->is_prepared() ? state.step + 1 : kNothingPrepared;
  } else if (common) {
    own.knows = true;
    own.step = common->state.step;
    own.epoch = common->state.epoch;
    // All have come together, but this member has not heard that all know.
    own.prepared = has_all && state.step > own.step ? state.step : kNothingPrepared;
  }
  return own;
}

Outcome Trainer::Run::tell_stands(Group& all, const NextTeam& next, std::vector<PartStand>& stands) {
  std::vector<std::uint64_t> told(kStandNumbers * static_cast<std::size_t>(all.size()));
  const auto of = [&](int position) {
    return std::span(told).subspan(kStandNumbers * static_cast<std::size_t>(position), kStandNumbers);
  };
  const std::span<std::uint64_t> mine = of(all.position());
  const PartStand own = own_stand();
  mine[kKnows] = own.knows ? 1 : 0;
  mine[kStep] = static_cast<std::uint64_t>(own.step);
  mine[kEpoch] = own.epoch;
  mine[kPrepared] = static_cast<std::uint64_t>(own.prepared);
  mine[kPart] = static_cast<std::uint64_t>(own.part);
  mine[kCopy] = static_cast<std::uint64_t>(own.copy);
  mine[kGeneration] = own.generation;
  mine[kEnding] = own.ending;
  Outcome outcome = all.all_gather(told, Clock::now() + team.patience);
  stands.clear();
  for (int position = 0; outcome.ok() && position < all.size(); ++position) {
    const std::span<std::uint64_t> one = of(position);
    stands.push_back({.rank = all.members()[static_cast<std::size_t>(position)],
                      .knows = one[kKnows] != 0,
                      .step = static_cast<std::int64_t>(one[kStep]),
                      .epoch = one[kEpoch],
                      .prepared = static_cast<std::int64_t>(one[kPrepared]),
                      .part = static_cast<int>(one[kPart]),
                      .copy = static_cast<int>(one[kCopy]),
                      .generation = static_cast<std::uint32_t>(one[kGeneration]),
                      .ending = one[kEnding],
                      .leaves = contains_rank(next.leaving, all.members()[static_cast<std::size_t>(position)])});
  }
  return outcome;
}

Outcome Trainer::Run::tell_cut(Group& all, const std::vector<PartStand>& stands) {
  const auto teller = std::ranges::find_if(stands, has_part);
  if (teller == stands.end() || std::ranges::all_of(stands, has_part)) {
    return {};
  }
  const auto position = static_cast<int>(teller - stands.begin());
  std::string now = config_text(config);
  std::string begun = config_text(original);
  for (std::string* text : {&now, &begun}) {
    if (Outcome outcome = share_text(all, position, *text, Clock::now() + team.patience); !outcome.ok()) {
      return outcome;
    }
  }
  if (!has_place()) {
    config = told_config(now);
    original = told_config(begun);
    generation = teller->generation;
    grid = grid_of(config);
    if (grid.parts() > 1) {
      partition = partition_of(config, graph);
    }
  }
  return {};
}

RunConfig Trainer::Run::told_config(const std::string& text) const {
  RunConfig told;
  apply_config_text(told, text, "the message of a member that is left");
  for (std::string RunConfig::*own :
       {&RunConfig::out, &RunConfig::tls_cert, &RunConfig::tls_key, &RunConfig::tls_ca, &RunConfig::thread_mode}) {
    told.*own = config.*own;
  }
  told.threads = config.threads;
  return told;
}

bool Trainer::Run::regroup_parts(std::uint32_t after) {
  for (;;) {
    const std::optional<NextTeam> next = team.next(after);
    if (!next) {
      return false;
    }
    after = next->epoch;
    if (after > kMostPartViews) {
      observer.note(fmt::format("a network that is cut bears {} changes of who is there", kMostPartViews - 1));
      return false;
    }
    if (!admit(*next, after)) {
      continue;
    }
    Group& all = *groups.emplace_back(
        std::make_unique<Group>(team.group->fabric(), next->members, part_epoch(after, PartGroup::meeting)));
    std::vector<PartStand> stands;
    if (!tell_stands(all, *next, stands).ok() || !tell_cut(all, stands).ok()) {
      continue;  // the next view tells who was lost now
    }
    if (std::ranges::none_of(stands, has_part) && !somebody_died(team.group->members(), next->members)) {
      give_way();  // the others were done before they could know of those who came
      return false;
    }
    const std::uint64_t end = std::ranges::max(stands, {}, &PartStand::ending).ending;
    const std::optional<Regrid> plan = regrid(grid.parts(), stands, next->most_workers / grid.parts());
    if (!plan && end > 0 && somebody_is_done(next->members)) {
      return false;  // who is done knew that all is written
    }
    const Going went = plan ? go_on_with(*plan, *next, all, end) : go_back(*next, all, stands);
    if (went != Going::again) {
      return went == Going::on;
    }
  }
}

bool Trainer::Run::somebody_is_done(const std::vector<Rank>& now) const {
  return std::ranges::any_of(team.group->members(), [&](Rank rank) {
    const std::optional<MemberNews> news = contains_rank(now, rank) ? std::nullopt : team.news_of(rank);
    return news && news->why.empty();
  });
}

bool Trainer::Run::somebody_died(const std::vector<Rank>& before, const std::vector<Rank>& now) const {
  return std::ranges::any_of(before, [&](Rank rank) {
    const std::optional<MemberNews> news = contains_rank(now, rank) ? std::nullopt : team.news_of(rank);
    return news && !news->why.empty();
  });
}

Trainer::Run::Going Trainer::Run::go_on_with(const Regrid& plan, const NextTeam& next, Group& all, std::uint64_t end) {
  const Rank self = all.members()[static_cast<std::size_t>(all.position())];
  const bool takes_part = contains_rank(plan.members, self);
  const bool gives =
      std::ranges::any_of(plan.handovers, [self](const auto& handover) { return handover.second.front() == self; });
  const bool has_state = has_place() && (takes_part || gives) && !plan.gets_state(self);
  const bool in_step = !has_place() || strategy->in_step();
  if (has_state && in_step && state.step < plan.step) {
    finish_prepared_step();
  }
  const auto source = static_cast<int>(plan.source);
  CommonPoint point;
  if (all.position() == source) {
    point = in_step ? CommonPoint{{}, state, ledger.save(), epochs_text(later_epochs), last_rows}
                    : CommonPoint{{}, common->state, common->ledger, common->later, common->rows};
  }
  std::vector<Rank> before;
  if (!share_place(all, source, point, before, Clock::now() + team.patience).ok()) {
    return Going::again;
  }
  CarriedState copied;
  CarriedState* carried = &copied;
  if (has_state && !in_step && common->state.step == plan.step) {
    carried = &common->carried;
  } else if (has_state) {
    copied = CarriedState::of(*replica, *strategy);
  }
  if (!hand_over(plan, next, self, *carried).ok()) {
    return Going::again;
  }
  // Who is left over may leave only when all others know that the group stands, and who leads then opens the files.
  if (!takes_part) {
    leave_folder();
  }
  if (team.formed) {
    team.formed(next.epoch);
  }
  if (!all.barrier(Clock::now() + team.patience).ok()) {
    return Going::again;
  }
  const bool by_wish = !somebody_died(before, next.members);
  if (!takes_part) {
    left = by_wish && contains_rank(before, self);
    give_way();
    return Going::over;
  }
  const std::string text = changes_text(before, plan, next.leaving);
  const int copies_before = static_cast<int>(std::ssize(before)) / grid.parts();
  strategy.reset();  // it borrows the groups before
  groups.push_back(std::make_unique<Group>(all.fabric(), plan.members, next.epoch));
  team.group = groups.back().get();
  grid.replicas = plan.copies;
  share_links();
  if (!has_place()) {
    team.spare = false;
    hold_part();
    size_up();
    make_replica();
  } else if (part) {
    take_place();
    replica->relink(*part_links);
  }
  const std::uint64_t ended = state.epoch;
  ending = ending_text(end);
  point.carried = std::move(*carried);
  go_on_from(point);
  note_who_came_and_went(before, next.members);
  for (const Rank rank : by_wish ? plan.spare : std::vector<Rank>()) {
    if (const std::optional<MemberNews> news = team.news_of(rank); news && contains_rank(before, rank)) {
      state.events.push_back({TeamEvent::What::left, news->who, "", state.step});
    }
  }
  common.reset();
  remember_common();
  if (team.leads()) {
    observer.note(fmt::format("{}{} after step {}{}", text,
                              grid.replicas == 1 ? "one copy goes on" : fmt::format("{} copies go on", grid.replicas),
                              state.step, by_wish && copies_before != grid.replicas ? "; now " + team_text() : ""));
    if (folder && state.epoch == ended + 1) {
      observer.epoch_ended(state.last);  // which it was kept from telling
    }
    if (!open_files()) {
      return Going::over;
    }
  } else if (folder) {
    leave_folder();
  }
  if (part) {
    checkpointed_step = -1;  // a worker may have died while it was written
  }
  if (parted && ending.empty()) {
    try {
      write_checkpoint(state.best_step == state.step ? std::optional(state.best_score) : std::nullopt);
    } catch (const ExchangeLost&) {
      return Going::again;
    }
  }
  return Going::on;
}

Outcome Trainer::Run::hand_over(const Regrid& plan, const NextTeam& next, Rank self, CarriedState& carried) {
  for (const auto& [number, ranks] : plan.handovers) {
    if (contains_rank(ranks, self)) {
      Group& those = *groups.emplace_back(
          std::make_unique<Group>(team.group->fabric(), ranks, part_epoch(next.epoch, PartGroup::handover)));
      return carried.share(those, 0, Clock::now() + team.patience);
    }
  }
  return {};
}

void Trainer::Run::leave_folder() {
  writer.reset();
  metrics.reset();
  events.reset();
  folder.reset();
  observer.follows();
}

void Trainer::Run::give_way() {
  given_up = true;
  team.spare = true;
  leave_folder();
}

std::string Trainer::Run::changes_text(const std::vector<Rank>& before, const Regrid& plan,
                                       const std::vector<Rank>& leaving) const {
  std::string text;
  std::set<int> broken;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const bool leaves = contains_rank(plan.spare, before[i]) && contains_rank(leaving, before[i]);
    const bool stays = !leaves && (contains_rank(plan.members, before[i]) || contains_rank(plan.spare, before[i]));
    const std::optional<MemberNews> news = stays ? std::nullopt : team.news_of(before[i]);
    if (!stays || contains_rank(plan.spare, before[i])) {
      broken.insert(static_cast<int>(i) / grid.parts());
    }
    if (news && (leaves || !news->why.empty())) {
      text += fmt::format("{}{} {}", text.empty() ? "" : "; ", news->who, leaves ? "leaves" : news->why);
    }
  }
  for (const Rank rank : plan.members) {
    if (const std::optional<MemberNews> news = team.news_of(rank); news && !contains_rank(before, rank)) {
      text += fmt::format("{}{} {}", text.empty() ? "" : "; ", news->who, name_of(TeamEvent::What::joined));
    }
  }
  const int copies = static_cast<int>(std::ssize(before)) / grid.parts();
  const int fewer = copies - plan.copies;
  std::vector<Rank> others = plan.spare;
  std::erase_if(others, [&](Rank rank) { return contains_rank(leaving, rank); });
  const std::string rest = others.empty() ? "" : workers_end_text(others);
  if (fewer <= 0) {
    return text + (text.empty() ? "" : ": ") + rest + (rest.empty() ? "" : "; ");
  }
  text += text.empty() ? "" : ": ";
  text += fewer == 1 && broken.size() == 1
              ? fmt::format("copy {} of {} is given up", *broken.begin() + 1, copies)
              : fmt::format("{} of {} copies {} given up", fewer, copies, fewer == 1 ? "is" : "are");
  return text + (rest.empty() ? "" : ", ") + rest + "; ";
}

void Trainer::Run::note_who_came_and_went(const std::vector<Rank>& before, const std::vector<Rank>& now) {
  for (const Rank rank : before) {
    const std::optional<MemberNews> news = contains_rank(now, rank) ? std::nullopt : team.news_of(rank);
    if (news && !news->why.empty()) {
      state.events.push_back({TeamEvent::What::lost, news->who, news->why, state.step});
    }
  }
  for (const Rank rank : team.group->members()) {
    const std::optional<MemberNews> news = contains_rank(before, rank) ? std::nullopt : team.news_of(rank);
    if (news) {
      state.events.push_back({TeamEvent::What::joined, news->who, "", state.step});
    }
  }
}

}  // namespace distbelief
