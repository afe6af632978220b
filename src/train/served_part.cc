// What is different in a run through parameter servers whose network is cut: servers hold the parameters of each part,
// and the workers of a copy do all in step, as one worker would.
#include <algorithm>
#include <array>
#include <thread>

#include "base/check.h"
#include "train/copy_leases.h"
#include "train/trainer_run.h"

namespace distbelief {
namespace {

constexpr std::uint32_t kCopyEpoch = 0x40;  ///< of the groups of a copy; those of servers are from 0x80 on
/// A silent process is given up after 5 s, and with it all of its copy.
constexpr std::chrono::seconds kGivenUpWithin{15};
constexpr std::chrono::milliseconds kBetweenLooksAtView{5};

}  // namespace

void Trainer::Run::take_part_of_served() {
  const ServedTeam& served = *team.served;
  check(served.workers == grid.processes() && served.parts == grid.parts() && !served.inside, "a worker for each part");
  if (!served.is_worker()) {
    for (int at = 0; at < grid.parts(); ++at) {
      const GridPlace of = place_in(grid, at);
      NetworkPart& one = all_parts.emplace_back(part_of(graph, table, partition, of.stage, of.tensor));
      if (is_sandblaster(config) && of.tensor > 0) {  // dot products count a parameter once: the first one's
        for (const std::string& name : copied_in_stage(of.stage)) {
          one.table.freeze(name);
        }
      }
    }
    return;
  }
  const int self = served.fabric->rank().value;
  const int first = self - served.part_of(Rank{self});  // of its copy; copies that came later are like the others
  grid_place = place_in(grid, served.part_of(Rank{self}));
  part.emplace(part_of(graph, table, partition, grid_place.stage, grid_place.tensor));
  std::vector<Rank> members(static_cast<std::size_t>(grid.parts()));
  for (std::size_t i = 0; i < members.size(); ++i) {
    members[i] = Rank{first + static_cast<int>(i)};
  }
  link_parts(*served.fabric, members, kCopyEpoch);
}

std::vector<const ParameterTable*> Trainer::Run::tables_of(const std::vector<NetworkPart>& parts) {
  std::vector<const ParameterTable*> tables;
  for (const NetworkPart& one : parts) {
    tables.push_back(&one.table);
  }
  return tables;
}

std::vector<ServedLinks::Space> Trainer::Run::served_spaces(std::vector<std::vector<float>>& values) const {
  if (grid.parts() == 1) {
    return {{&table, replica->values()}};
  }
  std::vector<ServedLinks::Space> spaces(static_cast<std::size_t>(grid.parts()));
  if (part) {
    spaces[static_cast<std::size_t>(team.served->part_of(team.served->fabric->rank()))].table = &part->table;
    return spaces;
  }
  values.resize(spaces.size());
  for (std::size_t i = 0; i < spaces.size(); ++i) {
    const ParameterTable& own = all_parts[i].table;
    values[i].resize(static_cast<std::size_t>(own.size()));
    own.initialize(config.seed, values[i]);
    spaces[i] = {&own, values[i]};
  }
  return spaces;
}

std::vector<std::string> Trainer::Run::copied_in_stage(int stage) const {
  if (grid.tensor == 1) {
    return {};
  }
  std::vector<NetworkPart> sharers;
  for (int i = 0; i < grid.tensor; ++i) {
    sharers.push_back(part_of(graph, table, partition, stage, i));
  }
  std::vector<std::string> names;
  for (const ParameterEntry& entry : sharers.front().table.entries()) {
    if (std::ranges::all_of(sharers, [&](const NetworkPart& one) {
          const ParameterEntry* held = one.table.find(entry.name);
          return held != nullptr && held->spec.part_axis < 0;
        })) {
      names.push_back(entry.name);
    }
  }
  return names;
}

UnitExchange::Options Trainer::Run::in_copy(UnitExchange::Options options) {
  if (!part) {
    return options;
  }
  options.agree = [this](ServerClient::PushReport& report) {
    std::array<double, ReplyHead::kStatuses + 1> said = {};
    said[static_cast<std::size_t>(report.status)] = 1;
    said.back() = report.whole ? 0 : 1;
    part_links->sum_of_all(said);
    const std::span<const double> statuses = std::span(said).first(ReplyHead::kStatuses);
    const auto worst = std::find_if(statuses.rbegin(), statuses.rend(), [](double members) { return members > 0; });
    report.status = static_cast<ReplyHead::Status>(statuses.rend() - worst - 1);
    report.whole = said.back() == 0;
  };
  // Parameters that each of several workers has a copy of are copies in the servers too, which gradients reach in
  // different orders; so the first one's is what counts.
  std::vector<Range> shared;
  for (const std::string& name : copied_in_stage(grid_place.stage)) {
    shared.push_back(part->table.at(name).range);
  }
  if (!shared.empty()) {
    options.fetched = [this, shared](std::span<float> values) {
      for (const Range& range : shared) {
        part_links->share_in_stage(
            values.subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.size())));
      }
    };
  }
  return options;
}

void Trainer::Run::agree_in_copy(StepReport& report) {
  if (!part || report.outcome == StepReport::Outcome::group_lost) {
    return;  // the others hear of a loss by themselves
  }
  std::array<double, 2> told = {report.stop ? 1.0 : 0.0, report.outcome == StepReport::Outcome::diverged ? 1.0 : 0.0};
  part_links->sum_of_all(told);
  report.stop = told[0] > 0;
  if (told[1] > 0) {
    report.outcome = StepReport::Outcome::diverged;
  }
}

RunSummary Trainer::Run::until_given_up(const std::function<RunSummary()>& work) const {
  RunSummary summary;
  try {
    summary = work();
  } catch (const ExchangeLost& lost) {
    summary.status = "lost";
    summary.problem = lost.what();
  }
  const bool awaits_word = part && summary.status == "lost" && team.served->given_up;
  const Clock::time_point deadline = Clock::now() + kGivenUpWithin;
  const auto job_is_over = [&] {
    return team.served->given_up() || (team.served->leader_left && team.served->leader_left());
  };
  while (awaits_word && !job_is_over() && Clock::now() < deadline) {
    std::this_thread::sleep_for(kBetweenLooksAtView);
  }
  return summary;
}

}  // namespace distbelief
