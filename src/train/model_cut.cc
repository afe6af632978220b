#include "train/model_cut.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/nearest_name.h"
#include "base/split.h"
#include "exec/part_arena.h"
#include "params/update_rule.h"
#include "plan/choose_micro_batches.h"
#include "train/cut_shares.h"

namespace distbelief {
namespace {

constexpr std::int64_t kMicroBatchesOfAStage = 4;
constexpr std::int64_t kFarBelowTheLimit = 2;  ///< estimates of memory are never so wrong

const std::vector<std::pair<std::string, Cut>>& cut_names() {
  static const std::vector<std::pair<std::string, Cut>> kNames = {{"outputs", Cut::outputs},
                                                                  {"inputs", Cut::inputs},
                                                                  {"channels", Cut::channels},
                                                                  {"region", Cut::region},
                                                                  {"whole", Cut::none}};
  return kNames;
}

/// Names between commas; none in an empty text.
std::vector<std::string> names_in(const std::string& list) {
  return list.empty() ? std::vector<std::string>() : split(list, ',');
}

[[noreturn]] void refuse_layer(const Graph& graph, const std::string& option, const std::string& name) {
  std::vector<std::string_view> names;
  for (const Node& node : graph.nodes()) {
    names.push_back(node.name);
  }
  throw InputError(
      fmt::format("--{}: model {} has no layer '{}'{}", option, graph.name(), name, did_you_mean(name, names)));
}

std::string stage_at_text(const Graph& graph, const Partition& partition) {
  std::vector<std::string> names;
  for (std::size_t i = 1; i < partition.stage.size(); ++i) {
    if (partition.stage[i] != partition.stage[i - 1]) {
      names.push_back(graph.nodes()[i].name);
    }
  }
  return fmt::format("{}", fmt::join(names, ","));
}

std::string cuts_text(const Graph& graph, const Partition& partition) {
  std::vector<std::string> cuts;
  for (std::size_t i = 1; i < partition.cuts.size(); ++i) {
    const auto found = std::ranges::find(cut_names(), partition.cuts[i], &std::pair<std::string, Cut>::second);
    if (partition.cuts[i] != Cut::none) {
      cuts.push_back(graph.nodes()[i].name + "=" + found->first);
    }
  }
  if (cuts.empty() && partition.tensor > 1) {
    return "*=whole";  // nobody shall plan again because nothing was said
  }
  return fmt::format("{}", fmt::join(cuts, ","));
}

}  // namespace

Grid grid_of(const RunConfig& config) {
  return {.replicas = static_cast<int>(replicas_of(config)),
          .stages = static_cast<int>(std::max<std::int64_t>(1, config.stages)),
          .tensor = static_cast<int>(std::max<std::int64_t>(1, config.tensor))};
}

std::int64_t micro_batches_of(const RunConfig& config) {
  if (config.stages <= 1 || config.accumulate > 1) {
    return config.accumulate;
  }
  const std::int64_t wanted = config.micro_batches > 0 ? config.micro_batches : kMicroBatchesOfAStage * config.stages;
  return std::min(wanted, batch_per_worker(config));
}

CutRequest cut_request(const RunConfig& config, int stages, int tensor, const PlanPlace& place) {
  RunConfig cut = config;
  cut.stages = stages;
  cut.tensor = tensor;
  RuleOptions rule = {.name = config.optimizer, .nesterov = config.nesterov};
  if (config.momentum >= 0) {
    rule.momentum = config.momentum;
  }
  return {.stages = stages,
          .tensor = tensor,
          .step = {.rows = batch_per_worker(config),
                   .micro_batches = micro_batches_of(cut),
                   .order = config.pipeline == "gpipe" ? PipelineOrder::gpipe : PipelineOrder::one_forward_one_backward,
                   .recompute = config.recompute,
                   .replicas = static_cast<int>(replicas_of(config)),
                   .optimizer_slots = make_rule(rule)->slots(),
                   .machine = place.machine},
          .memory_limit = place.memory_limit};
}

namespace {

bool is_cut_in_full(const RunConfig& config) {
  return config.stages > 0 && config.tensor > 0 && (config.stages == 1 || !config.stage_at.empty()) &&
         (config.tensor == 1 || !config.cuts.empty());
}

/// Nobody has said in how many micro-batches a pipeline works.
bool leaves_micro_batches_open(const RunConfig& config) {
  return config.stages != 1 && config.micro_batches == 0 && config.accumulate == 1;
}

/// Shares are in proportion to speed: who has the most of its stage is as fast as the machine that costs are of.
std::vector<double> slowness_by(const std::vector<double>& shares, int tensor) {
  std::vector<double> slowness = shares;
  for (auto first = slowness.begin(); first != slowness.end(); first += tensor) {
    const double most = *std::max_element(first, first + tensor);
    std::transform(first, first + tensor, first, [most](double share) { return most / share; });
  }
  return slowness;
}

PassFactors mean_of(const std::vector<PassFactors>& factors) {
  PassFactors sum = {0, 0};
  for (const PassFactors& one : factors) {
    sum = {sum.forward + one.forward, sum.backward + one.backward};
  }
  const auto count = static_cast<double>(factors.size());
  return factors.empty() ? PassFactors{} : PassFactors{sum.forward / count, sum.backward / count};
}

void best_first(std::vector<WeighedCut>& cuts) {
  std::ranges::stable_sort(cuts, [](const WeighedCut& a, const WeighedCut& b) {
    const auto worth = [](const WeighedCut& cut) {
      return std::tuple(!cut.problem.empty(), !cut.fits, cut.prediction.step_seconds);
    };
    return worth(a) < worth(b);
  });
}

WeighedCut weigh(const RunConfig& config, const Graph& graph, const ParameterTable& table, int stages, int tensor,
                 const PlanPlace& place) {
  const CutRequest request = cut_request(config, stages, tensor, place);
  WeighedCut cut = {.config = config, .stages = stages, .tensor = tensor, .step = request.step};
  cut.config.stages = stages;
  cut.config.tensor = tensor;
  if (tensor == 1 && config.shares == kMeasuredShares) {
    cut.config.shares.clear();
  }
  try {
    if (!is_cut_in_full(cut.config)) {
      const Partition chosen = choose_partition(graph, table, request);
      if (config.stage_at.empty()) {
        cut.config.stage_at = stage_at_text(graph, chosen);
      }
      if (config.cuts.empty()) {
        cut.config.cuts = cuts_text(graph, chosen);
      }
    }
    cut.partition = partition_of(cut.config, graph);
    cut.step.slowness = slowness_by(cut.partition.shares, tensor);
    if (leaves_micro_batches_open(cut.config)) {
      cut.step.micro_batches = choose_micro_batches(graph, table, cut.partition, cut.step, place.memory_limit);
      cut.config.micro_batches = cut.step.micro_batches;
    }
    cut.prediction = predict(graph, table, cut.partition, cut.step);
    cut.fits = place.memory_limit == 0 || cut.prediction.most_memory <= place.memory_limit;
  } catch (const InputError& error) {
    cut.problem = error.what();
    cut.fits = false;
  }
  return cut;
}

}  // namespace

std::vector<WeighedCut> weigh_cuts(const RunConfig& config, const Graph& graph, const ParameterTable& table,
                                   const PlanPlace& place) {
  const auto parts = static_cast<int>(parts_of(config));
  std::vector<WeighedCut> cuts;
  for (int stages = 1; stages <= parts; ++stages) {
    if (parts % stages == 0 && (config.stages == 0 || config.stages == stages) &&
        (config.tensor == 0 || config.tensor == parts / stages)) {
      cuts.push_back(weigh(config, graph, table, stages, parts / stages, place));
    }
  }
  best_first(cuts);
  return cuts;
}

void settle(std::vector<WeighedCut>& cuts, const Graph& graph, const ParameterTable& table, std::int64_t memory_limit) {
  std::map<std::string, std::int64_t> known;  // many parts look alike
  const auto arena = [&](const NetworkPart& part, std::int64_t rows) {
    std::string look = fmt::format("{}", rows);
    for (const Node& node : part.graph.nodes()) {
      look += fmt::format(" {} {}", node.name, node.output.shape.text());
    }
    const auto [found, fresh] = known.try_emplace(std::move(look), 0);
    if (fresh) {
      found->second = compiled_arena_bytes(part, rows);
    }
    return found->second;
  };
  const auto settle_one = [&](WeighedCut& cut) {
    cut.step.whole_parts = whole_part_factors(all_parts(graph, table, cut.partition), cut.tensor, cut.step);
    cut.prediction = predict(graph, table, cut.partition, cut.step, arena);
    cut.compiled = true;
    cut.fits = memory_limit == 0 || cut.prediction.most_memory <= memory_limit;
  };
  const auto unsettled = [](const WeighedCut& cut) { return cut.problem.empty() && !cut.compiled; };
  while (!cuts.empty() && unsettled(cuts.front())) {
    WeighedCut& first = cuts.front();
    settle_one(first);
    const PassFactors mean = mean_of(first.step.whole_parts);
    for (WeighedCut& other : cuts) {
      if (unsettled(other) && memory_limit > 0 && other.prediction.most_memory > memory_limit / kFarBelowTheLimit) {
        settle_one(other);
      } else if (unsettled(other)) {  // as much slower as the first is, so that they can be compared
        other.step.whole_parts.assign(static_cast<std::size_t>(other.partition.parts()), mean);
        other.prediction = predict(graph, table, other.partition, other.step);
      }
    }
    best_first(cuts);
  }
}

bool needs_plan(const RunConfig& config) {
  return parts_of(config) > 1 && (!is_cut_in_full(config) || leaves_micro_batches_open(config));
}

namespace {

WeighedCut first_of(std::vector<WeighedCut> cuts) {
  if (cuts.empty() || !cuts.front().problem.empty()) {
    throw InputError(cuts.empty() ? "no stages and tensor make up --partition" : cuts.front().problem);
  }
  return std::move(cuts.front());
}

}  // namespace

WeighedCut best_cut(const RunConfig& config, const Graph& graph, const ParameterTable& table, const PlanPlace& place) {
  return first_of(weigh_cuts(config, graph, table, place));
}

WeighedCut best_settled_cut(const RunConfig& config, const Graph& graph, const ParameterTable& table,
                            const PlanPlace& place) {
  std::vector<WeighedCut> cuts = weigh_cuts(config, graph, table, place);
  settle(cuts, graph, table, place.memory_limit);
  return first_of(std::move(cuts));
}

void plan_cut(RunConfig& config, const Graph& graph, const ParameterTable& table) {
  if (needs_plan(config)) {
    config = best_cut(config, graph, table).config;
  }
}

Partition partition_of(const RunConfig& config, const Graph& graph) {
  Partition partition = uncut(graph);
  const Grid grid = grid_of(config);
  partition.stages = grid.stages;
  partition.tensor = grid.tensor;
  partition.shares = parse_shares(config.shares, grid);
  std::size_t last = 0;
  int stage = 0;
  for (const std::string& name : names_in(config.stage_at)) {
    const auto found = std::ranges::find(graph.nodes(), name, &Node::name);
    const auto at = static_cast<std::size_t>(found - graph.nodes().begin());
    if (found == graph.nodes().end() || at == 0) {
      refuse_layer(graph, "stage-at", name);
    }
    if (at <= last || at == 1) {
      throw InputError(fmt::format("--stage-at {}: layer '{}' is not behind the beginning of the stage before it",
                                   config.stage_at, name));
    }
    std::fill(partition.stage.begin() + static_cast<std::ptrdiff_t>(at), partition.stage.end(), ++stage);
    last = at;
  }
  if (stage + 1 != grid.stages) {
    throw InputError(fmt::format("--stage-at {}: {} layers begin {} stages, not --stages {}", config.stage_at, stage,
                                 stage + 1, grid.stages));
  }
  for (const std::string& text : names_in(config.cuts)) {
    const std::size_t equals = text.find('=');
    const std::string pattern = text.substr(0, equals);
    const auto cut = equals == std::string::npos
                         ? cut_names().end()
                         : std::ranges::find(cut_names(), text.substr(equals + 1), &std::pair<std::string, Cut>::first);
    if (cut == cut_names().end()) {
      throw InputError(fmt::format("--cuts {}: expected LAYER=outputs, inputs, channels, region or whole", text));
    }
    bool any = false;
    for (std::size_t i = 1; i < graph.nodes().size(); ++i) {
      if (matches_pattern(pattern, graph.nodes()[i].name)) {
        partition.cuts[i] = cut->second;
        any = true;
      }
    }
    if (!any) {
      refuse_layer(graph, "cuts", pattern);
    }
  }
  return partition;
}

}  // namespace distbelief
