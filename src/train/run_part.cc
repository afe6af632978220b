// What is different in a run whose network is cut over several workers: each has a part, which it learns from the grid;
// what comes from files is shared out; and what one finds out all must know, as each has only its own part to look at.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "strategy/step_exchange.h"
#include "train/core_share.h"
#include "train/cut_shares.h"
#include "train/model_cut.h"
#include "train/part_epochs.h"
#include "train/speed_probe.h"
#include "train/trainer_run.h"

namespace distbelief {
namespace {

/// Of the group of all processes with servers; those of copies and of servers have others.
constexpr std::uint32_t kSpeedEpoch = 0x48;

/// The state of a strategy as lists of floats; `numbers`, unless null, replace its other numbers.
class ListVisitor : public StateVisitor {
 public:
  ListVisitor(std::vector<PartedModel::List>& lists, const std::map<std::string, std::vector<std::uint64_t>>* numbers)
      : lists_(lists), numbers_(numbers) {}
  void floats(std::string_view name, std::span<float> values) override {
    lists_.push_back({std::string(name) + "/", values});
  }
  void number(std::string_view name, std::uint64_t& value) override {
    if (const auto* found = find(name)) {
      value = found->at(0);
    }
  }
  void numbers(std::string_view name, std::vector<std::uint64_t>& values) override {
    if (const auto* found = find(name)) {
      values = *found;
    }
  }

 private:
  const std::vector<std::uint64_t>* find(std::string_view name) const {
    if (numbers_ == nullptr) {
      return nullptr;
    }
    const auto found = numbers_->find(std::string(name));
    return found == numbers_->end() ? nullptr : &found->second;
  }
  std::vector<PartedModel::List>& lists_;
  const std::map<std::string, std::vector<std::uint64_t>>* numbers_;
};

}  // namespace

int Trainer::Run::compute_threads() const {
  return config.threads == 0 ? std::max(1, usable_cores() / team.sharers) : static_cast<int>(config.threads);
}

void Trainer::Run::measure_shares() {
  check(team.served != nullptr || team.group != nullptr, "a worker for each part of each copy");
  std::optional<Group> all;  // with servers, which hold what the shares make of parameters
  Group& group = team.served == nullptr
                     ? *team.group
                     : all.emplace(*team.served->fabric, all_ranks(*team.served->fabric), kSpeedEpoch);
  const Clock::time_point deadline = Clock::now() + team.patience;
  const auto expect = [](const Outcome& outcome) {
    if (!outcome.ok()) {
      throw ExchangeLost(outcome);
    }
  };
  expect(group.barrier(deadline));  // all compute at the same time, as they will
  std::vector<std::uint64_t> speeds(static_cast<std::size_t>(group.size()));
  if (group.position() < grid.processes()) {
    const double slowness = team.chaos == nullptr ? 1 : team.chaos->first_slowness();
    speeds[static_cast<std::size_t>(group.position())] =
        static_cast<std::uint64_t>(probe_speed(compute_threads()) / slowness);
  }
  expect(group.all_gather(speeds, deadline));
  config.shares = shares_by_speed(grid, std::span(speeds).first(static_cast<std::size_t>(grid.processes())));
  measured_shares = true;
}

void Trainer::Run::take_part() {
  plan_cut(config, graph, table);
  grid = grid_of(config);
  if (grid.parts() == 1) {
    return;
  }
  if (config.shares == kMeasuredShares) {
    if (team.late) {
      throw Error("the shares of the network are not known yet, as the job has just begun: join again");
    }
    measure_shares();
    if (team.served != nullptr && team.served->is_server() && team.served->tell_shares) {  // each: any may die
      team.served->tell_shares(config.shares);
    }
  }
  partition = partition_of(config, graph);
  if (team.served != nullptr) {
    take_part_of_served();
    return;
  }
  check(team.group != nullptr && team.size() == grid.processes(), "a worker for each part of each copy");
  share_links();
  hold_part();
}

void Trainer::Run::share_links() const {
  if (team.share_links) {
    team.share_links(grid.parts() > 1 && grid.replicas > 1);
  }
}

void Trainer::Run::hold_part() {
  if (grid.parts() == 1) {
    return;
  }
  const GridPlace place = place_in(grid, team.position());
  part.emplace(part_of(graph, table, partition, place.stage, place.tensor));
  take_place();
}

void Trainer::Run::take_place() {
  grid_place = place_in(grid, team.position());
  Fabric& fabric = team.group->fabric();
  const std::uint32_t view = team.group->epoch();
  check(view <= kMostPartViews, "there are epochs for its groups");
  std::vector<Rank> copies;
  for (int copy = 0; copy < grid.replicas; ++copy) {
    const int process = process_at(grid, {copy, grid_place.stage, grid_place.tensor});
    copies.push_back(team.group->members()[static_cast<std::size_t>(process)]);
  }
  groups.push_back(std::make_unique<Group>(fabric, copies, part_epoch(view, PartGroup::column)));
  team.column = groups.back().get();
  const auto first = team.group->members().begin() + grid_place.replica * grid.parts();
  const std::vector<Rank> parts(first, first + grid.parts());
  link_parts(fabric, parts, part_epoch(view, PartGroup::parts));
  if (parted) {
    old_parted.push_back(std::move(parted));
  }
  if (grid_place.replica == 0) {
    parted = std::make_unique<PartedModel>(
        graph, table, part->table, partition, fabric,
        PartedModel::Options{.members = parts, .epoch = part_epoch(view, PartGroup::files), .patience = team.patience});
  }
}

void Trainer::Run::link_parts(Fabric& fabric, const std::vector<Rank>& members, std::uint32_t epoch) {
  if (part_links) {
    old_links.push_back(std::move(part_links));
  }
  part_links = std::make_unique<PartLinks>(fabric, PartLinks::Options{.members = members,
                                                                      .tensor = grid.tensor,
                                                                      .epoch = epoch,
                                                                      .patience = team.patience,
                                                                      .watch = &team.activity->compute()});
}

std::vector<PartedModel::List> Trainer::Run::lists() {
  std::vector<PartedModel::List> all = {{"", replica->values()}};
  ListVisitor visitor(all, nullptr);
  strategy->visit_state(visitor);
  return all;
}

void Trainer::Run::share_out() {
  if (!part) {
    return;
  }
  std::vector<PartedModel::List> all = {{"", replica->values()}};
  ListVisitor visitor(all, &strategy_numbers);
  strategy->visit_state(visitor);
  if (!parted) {
    return;  // other copies get theirs from the first
  }
  if (!parted->leads()) {
    (void)parted->serve(all);
    return;
  }
  std::vector<float> piece;
  const auto pass_on = [&](const SafetensorsView& file, std::size_t number, const ParameterEntry& entry) {
    const TensorEntry& tensor = file.expect(all[number].prefix + entry.name, entry.shape);
    const std::int64_t count = entry.shape.elements();
    for (std::int64_t first_float = 0; first_float < count; first_float += FloatArray::kPieceFloats) {
      piece.resize(static_cast<std::size_t>(std::min(FloatArray::kPieceFloats, count - first_float)));
      file.read(tensor, first_float, piece);
      parted->write(all[number], number, entry, first_float, piece);
    }
  };
  const auto is_taken = [&](std::size_t number) {
    const std::string& prefix = all[number].prefix;
    return number == 0 || !taken_slots || taken_slots->contains(prefix.substr(0, prefix.size() - 1));
  };
  if (resumed) {
    share_out_resumed(all);
  } else if (to_share_out) {
    for (std::size_t number = 0; number < all.size(); ++number) {
      for (const ParameterEntry& entry : table.entries()) {
        if (!is_taken(number)) {
          continue;  // it begins anew
        }
        pass_on(number == 0 ? to_share_out->values() : to_share_out->state(), number, entry);
      }
    }
    to_share_out.reset();
  } else if (initialised) {
    const SafetensorsFile file(model_file_of(config.init));
    for (const std::string& name : init_report(config.init, table).kept) {
      pass_on(file.view(), 0, table.at(name));
    }
  }
  parted->finish();
}

void Trainer::Run::share_out_resumed(std::span<const PartedModel::List> all) {
  for (std::size_t number = 0; number < all.size(); ++number) {
    const std::string& prefix = all[number].prefix;
    const auto slot =
        number == 0 ? resumed->whole.slots.end() : resumed->whole.slots.find(prefix.substr(0, prefix.size() - 1));
    if (number > 0 && slot == resumed->whole.slots.end()) {
      continue;  // it begins anew
    }
    const std::span<const float> floats = number == 0 ? resumed->whole.values : slot->second;
    for (const ParameterEntry& entry : table.entries()) {
      const std::int64_t count = entry.shape.elements();
      for (std::int64_t first = 0; first < count; first += FloatArray::kPieceFloats) {
        const std::int64_t piece = std::min(FloatArray::kPieceFloats, count - first);
        parted->write(
            all[number], number, entry, first,
            floats.subspan(static_cast<std::size_t>(entry.range.begin + first), static_cast<std::size_t>(piece)));
      }
    }
  }
  resumed.reset();
}

StepReport Trainer::Run::agreed(const std::function<StepReport()>& step) const {
  if (!part) {
    return step();
  }
  StepReport report;
  try {
    report = step();
  } catch (const ExchangeLost& lost) {
    return lost_report(lost.outcome());
  }
  if (report.outcome == StepReport::Outcome::group_lost) {
    return report;
  }
  const Clock::time_point deadline = Clock::now() + team.patience;
  std::array<double, 3> told = {report.stop ? 1.0 : 0.0, report.outcome == StepReport::Outcome::diverged ? 1.0 : 0.0,
                                report.regroup ? 1.0 : 0.0};
  if (const Outcome outcome = team.group->all_reduce(told, deadline); !outcome.ok()) {
    StepReport lost = lost_report(outcome);
    lost.completed = report.outcome == StepReport::Outcome::stepped;  // what was done here stays
    lost.sums = report.sums;
    lost.updates = report.updates;
    return lost;
  }
  report.stop = told[0] > 0;
  report.regroup = told[2] > 0;
  if (told[1] > 0) {
    report.outcome = StepReport::Outcome::diverged;
    StepExchange exchange(*team.group, 0);
    if (const Outcome outcome = exchange.tell_culprit(report.culprit, deadline); !outcome.ok()) {
      return lost_report(outcome);
    }
  }
  return report;
}

}  // namespace distbelief
