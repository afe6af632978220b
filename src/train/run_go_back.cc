// What a team does whose network is cut when a part of it is lost with its last holder, or before all had theirs: those
// who live agree on how the network is cut for as many as they are, and begin anew from the newest checkpoint, each in
// its place of the new grid. That is a new Trainer in the same process: see train_in_team().
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "metrics/memory_limit.h"
#include "train/cut_shares.h"
#include "train/model_cut.h"
#include "train/part_epochs.h"
#include "train/trainer_run.h"

namespace distbelief {
namespace {

/// What was to happen to workers that there are not any more does not: who lives has heard of its own already.
RunConfig without_lost_chaos(RunConfig config) {
  try {
    check_config(config);
  } catch (const InputError&) {
    config.chaos.clear();
  }
  return config;
}

}  // namespace

std::optional<RunConfig> Trainer::Run::config_for(int workers, std::uint64_t memory) const {
  const auto parts_before = static_cast<int>(parts_of(original));
  for (int parts = std::min(parts_before, workers); parts >= 1; --parts) {
    const int copies = workers / parts;
    RunConfig now = original;
    now.workers = copies * parts;
    now.replicas = 0;
    if (parts != parts_before) {
      leave_out_cut(now);
      now.partition = parts > 1 ? parts : 0;
      now.micro_batches = 0;
    }
    if (now.shares == kMeasuredShares) {
      now.shares.clear();
    }
    try {
      const WeighedCut cut = best_cut(now, graph, table, {.memory_limit = static_cast<std::int64_t>(memory)});
      if (parts < parts_before && !cut.fits) {
        return std::nullopt;  // nor will fewer parts fit
      }
      if (parts > 1) {
        now = cut.config;
        (void)part_of(graph, table, partition_of(now, graph), 0, 0);
      }
      now = without_lost_chaos(now);
      check_config(now);
      return now;
    } catch (const InputError&) {
      continue;  // the network has less to share out than so many workers
    }
  }
  return std::nullopt;
}

Trainer::Run::Going Trainer::Run::go_back(const NextTeam& next, Group& all, const std::vector<PartStand>& stands) {
  const auto self = static_cast<std::size_t>(all.position());
  const std::size_t count = next.members.size();
  std::vector<std::uint64_t> told(2 * count);  // of each: memory, and whether it sees the folder
  told[2 * self] = memory_of_a_process(team.sharers);
  told[2 * self + 1] = std::filesystem::exists(std::filesystem::path(config.out) / "run.yaml") ? 1 : 0;
  if (!all.all_gather(told, Clock::now() + team.patience).ok()) {
    return Going::again;
  }
  std::uint64_t memory = 0;
  for (std::size_t i = 0; i < count; ++i) {
    memory = memory == 0 || (told[2 * i] != 0 && told[2 * i] < memory) ? told[2 * i] : memory;
  }
  const auto leaves = [&](Rank rank) { return std::ranges::find(next.leaving, rank) != next.leaving.end(); };
  const auto first_that_sees_the_folder = [&](bool may_leave) -> std::optional<std::size_t> {
    for (std::size_t i = 0; i < count; ++i) {
      if (told[2 * i + 1] != 0 && (may_leave || !leaves(next.members[i]))) {
        return i;
      }
    }
    return std::nullopt;
  };
  std::optional<std::size_t> leader = first_that_sees_the_folder(false);
  std::size_t stay = count - next.leaving.size();
  if (!leader || static_cast<std::int64_t>(stay) < parts_of(original)) {  // nobody can be done without
    leader = first_that_sees_the_folder(true);
    stay = count;
  }
  const std::optional<RunConfig> now = config_for(static_cast<int>(stay), memory);
  if (!now || !leader) {
    if (self == 0) {
      observer.note(now ? fmt::format("a part of the network is lost, and no host that is left sees {}", config.out)
                        : fmt::format("a part of the network is lost, which {} worker{} cannot hold", count,
                                      count == 1 ? "" : "s"));
    }
    return Going::over;
  }
  if (team.formed) {
    team.formed(next.epoch);
  }
  if (!all.barrier(Clock::now() + team.patience).ok()) {
    return Going::again;
  }
  RollBack back = {.team = next, .config = *now, .original = original};
  if (team.went_back != nullptr) {
    back.came = team.went_back->came;
  }
  std::ranges::rotate(back.team.members, back.team.members.begin() + static_cast<std::ptrdiff_t>(*leader));
  if (stay < count) {
    std::ranges::stable_partition(back.team.members, [&](Rank rank) { return !leaves(rank); });
  }
  const auto places = static_cast<std::size_t>(now->workers);
  back.spare.assign(back.team.members.begin() + static_cast<std::ptrdiff_t>(places), back.team.members.end());
  back.team.members.resize(places);
  for (const PartStand& stand : stands) {
    const std::optional<MemberNews> news = stand.part == kNoPart ? team.news_of(stand.rank) : std::nullopt;
    if (news && std::ranges::find(back.team.members, stand.rank) != back.team.members.end()) {
      back.came.push_back(*news);
    }
    back.generation = std::max(back.generation, stand.generation + 1);
    back.step = stand.knows ? std::max(back.step, stand.step) : back.step;
  }
  for (int rank = 0; rank < all.fabric().size(); ++rank) {
    const bool lives = std::ranges::find(next.members, Rank{rank}) != next.members.end();
    const std::optional<MemberNews> news = lives ? std::nullopt : team.news_of(Rank{rank});
    if (news && !news->why.empty()) {
      back.lost.push_back(*news);
    }
  }
  if (std::ranges::find(back.spare, next.members[self]) != back.spare.end()) {
    give_way();
  } else {
    roll_back = std::move(back);
  }
  return Going::over;
}

void Trainer::Run::note_way_back() {
  const RollBack& back = *team.went_back;
  std::string text;
  const auto note = [&](TeamEvent::What what, const MemberNews& news, std::string_view word) {
    const bool known = std::ranges::any_of(
        state.events, [&](const TeamEvent& event) { return event.what == what && event.who == news.who; });
    if (!known) {
      state.events.push_back({what, news.who, news.why, state.step});
      text += fmt::format("{}{} {}", text.empty() ? "" : "; ", news.who, word);
    }
  };
  for (const MemberNews& news : back.lost) {
    note(TeamEvent::What::lost, news, news.why);
  }
  for (const MemberNews& news : back.came) {
    note(TeamEvent::What::joined, news, name_of(TeamEvent::What::joined));
  }
  const std::int64_t steps = std::max<std::int64_t>(0, back.step - state.step);
  text += fmt::format("{}a part of the network is nowhere else: back to {}, {} step{} {} made again",
                      text.empty() ? "" : ": ",
                      checkpointed_step >= 0 ? fmt::format("the checkpoint of step {}", state.step) : "the beginning",
                      steps, steps == 1 ? "" : "s", steps == 1 ? "is" : "are");
  text += "; now " + team_text();
  if (!back.spare.empty()) {
    text += "; " + workers_end_text(back.spare);
  }
  observer.note(text);
}

}  // namespace distbelief
