#include "plan/choose_cut.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"

namespace distbelief {
namespace {

constexpr int kSweeps = 3;

/// Cuts of a whole network, of which some layers decide for themselves and the others follow what they read.
class CutSearch {
 public:
  CutSearch(const Graph& graph, const ParameterTable& table, const CutRequest& request)
      : graph_(graph), table_(table), request_(request), partition_(uncut(graph)) {
    partition_.tensor = request.tensor;
    for (NodeId id = 1; id <= graph.output(); ++id) {
      const Node& node = graph.node(id);
      const std::vector<ValueSpec> inputs = graph.input_specs(id);
      std::vector<Cut> possible;
      for (const Cut cut : node.layer->cuts(inputs)) {
        if (node.layer->cut_places(cut, inputs) >= request.tensor) {
          possible.push_back(cut);
        }
      }
      const bool follows = std::ranges::find(possible, Cut::channels) != possible.end() || possible.empty() ||
                           node.layer->parameters(inputs).empty();
      offered_.push_back(possible);
      if (!follows) {
        deciders_.push_back(id);
      }
    }
  }

  std::vector<Cut> best() {
    if (deciders_.empty()) {
      throw InputError(fmt::format("model {}: none of its layers can be shared out among {} workers; choose --stages",
                                   graph_.name(), request_.tensor));
    }
    std::vector<Cut> best;
    double least = std::numeric_limits<double>::infinity();
    for (const int pattern : {0, 1, 2}) {
      std::vector<Cut> decided(graph_.nodes().size(), Cut::none);
      for (std::size_t i = 0; i < deciders_.size(); ++i) {
        const std::vector<Cut>& possible = offered(deciders_[i]);
        const std::size_t choice = pattern == 0 ? 0 : pattern == 1 ? i % 2 : possible.size() - 1;
        decided[static_cast<std::size_t>(deciders_[i])] = possible[std::min(choice, possible.size() - 1)];
      }
      double cost = improve(decided);
      if (cost < least) {
        least = cost;
        best = followed(decided);
      }
    }
    return best;
  }

 private:
  const std::vector<Cut>& offered(NodeId id) const { return offered_[static_cast<std::size_t>(id) - 1]; }

  /// Tries other cuts for one layer after the other as long as that helps.
  double improve(std::vector<Cut>& decided) {
    double least = cost(decided);
    bool better = true;
    for (int sweep = 0; sweep < kSweeps && better; ++sweep) {
      better = false;
      for (const NodeId id : deciders_) {
        std::vector<Cut> others = offered(id);
        others.push_back(Cut::none);
        for (const Cut cut : others) {
          Cut& own = decided[static_cast<std::size_t>(id)];
          const Cut before = std::exchange(own, cut);
          const double now = before == cut ? least : cost(decided);
          if (now < least) {
            least = now;
            better = true;
          } else {
            own = before;
          }
        }
      }
    }
    return least;
  }

  /// What the layers that do not decide do: they leave a value in the hands in which it is, if they can.
  std::vector<Cut> followed(const std::vector<Cut>& decided) const {
    std::vector<Cut> cuts = decided;
    std::vector<int> axis(cuts.size(), 0);  // along which the value is in slices; 0: it is not
    for (NodeId id = 1; id <= graph_.output(); ++id) {
      const auto i = static_cast<std::size_t>(id);
      const int source = axis[static_cast<std::size_t>(graph_.node(id).inputs[0])];
      const std::vector<Cut>& possible = offered(id);
      const Cut wanted = source == 1 ? Cut::channels : source == 2 ? Cut::region : Cut::none;
      if (std::ranges::find(deciders_, id) == deciders_.end()) {
        cuts[i] = std::ranges::find(possible, wanted) != possible.end() ? wanted : Cut::none;
      }
      axis[i] = cuts[i] == Cut::outputs || cuts[i] == Cut::channels ? 1 : cuts[i] == Cut::region ? 2 : 0;
    }
    return cuts;
  }

  double cost(const std::vector<Cut>& decided) {
    partition_.cuts = followed(decided);
    const NetworkPart part = part_of(graph_, table_, partition_, 0, 0);
    double seconds = update_seconds(part.table.optimized_size(), request_.step.optimizer_slots, request_.step.machine) /
                     static_cast<double>(request_.step.micro_batches);
    for (const NodeCost& cost :
         node_costs(part.graph, part.table, request_.step.micro_batch_rows(), request_.tensor, request_.step.machine)) {
      seconds += cost.seconds();
    }
    return seconds;
  }

  const Graph& graph_;
  const ParameterTable& table_;
  const CutRequest& request_;
  Partition partition_;
  std::vector<std::vector<Cut>> offered_;  ///< of the nodes but the input
  std::vector<NodeId> deciders_;
};

/// What one of the processes that share a node has of it.
struct NodeLoad {
  double seconds = 0;            ///< for a micro-batch, exchanges before the node included
  std::int64_t kept_bytes = 0;   ///< for training, whatever the micro-batches
  std::int64_t value_bytes = 0;  ///< for each open micro-batch
};

/// Where stages begin: the runs of nodes whose costliest is cheapest, of those that fit the memory.
class StageSearch {
 public:
  StageSearch(const std::vector<NodeLoad>& loads, const CutRequest& request)
      : request_(request), nodes_(loads.size()), before_(loads.size() + 1) {
    for (std::size_t i = 0; i < nodes_; ++i) {
      before_[i + 1] = {before_[i].seconds + loads[i].seconds, before_[i].kept_bytes + loads[i].kept_bytes,
                        before_[i].value_bytes + loads[i].value_bytes};
    }
  }

  /// The stage of each node; empty when nothing fits.
  std::vector<int> best(std::int64_t memory_limit) const {
    // least[s][i]: the costliest of s stages that end before node i; node 0 is the input.
    const double none = std::numeric_limits<double>::infinity();
    const auto stages = static_cast<std::size_t>(request_.stages);
    std::vector<std::vector<double>> least(stages + 1, std::vector<double>(nodes_ + 1, none));
    std::vector<std::vector<std::size_t>> begins(stages + 1, std::vector<std::size_t>(nodes_ + 1, 1));
    least[0][1] = 0;
    for (std::size_t s = 1; s <= stages; ++s) {
      for (std::size_t end = 2; end <= nodes_; ++end) {
        for (std::size_t begin = 1; begin < end; ++begin) {
          const double worst = std::max(least[s - 1][begin], before_[end].seconds - before_[begin].seconds);
          if (worst < least[s][end] && fits(static_cast<int>(s) - 1, begin, end, memory_limit)) {
            least[s][end] = worst;
            begins[s][end] = begin;
          }
        }
      }
    }
    if (least[stages][nodes_] == none) {
      return {};
    }
    std::vector<int> stage(nodes_, 0);
    std::size_t end = nodes_;
    for (std::size_t s = stages; s > 0; --s) {
      const std::size_t begin = begins[s][end];
      std::fill(stage.begin() + static_cast<std::ptrdiff_t>(begin), stage.begin() + static_cast<std::ptrdiff_t>(end),
                static_cast<int>(s) - 1);
      end = begin;
    }
    return stage;
  }

 private:
  bool fits(int stage, std::size_t begin, std::size_t end, std::int64_t limit) const {
    if (limit == 0) {
      return true;
    }
    const SimulatedStep& step = request_.step;
    const std::int64_t slots =
        step.recompute ? 1 : pipeline_slots(step.order, stage, request_.stages, step.micro_batches);
    return before_[end].kept_bytes - before_[begin].kept_bytes +
               slots * (before_[end].value_bytes - before_[begin].value_bytes) <=
           limit;
  }

  const CutRequest& request_;
  const std::size_t nodes_;
  std::vector<NodeLoad> before_;  ///< sums over the nodes before
};

std::vector<NodeLoad> node_loads(const Graph& graph, const ParameterTable& table, const Partition& unstaged,
                                 const CutRequest& request) {
  const NetworkPart part = part_of(graph, table, unstaged, 0, 0);
  const SimulatedStep& step = request.step;
  const std::int64_t rows = step.micro_batch_rows();
  const std::vector<NodeCost> costs = node_costs(part.graph, part.table, rows, request.tensor, step.machine);
  const std::int64_t copies = 2 + (step.micro_batches > 1 ? 1 : 0) + step.optimizer_slots;
  std::vector<NodeLoad> loads(graph.nodes().size());
  std::size_t next = 1;
  for (NodeId id = 1; id <= part.graph.output(); ++id) {
    const Node& node = part.graph.node(id);
    NodeLoad& load = loads[std::min(next, loads.size() - 1)];
    load.seconds += costs[static_cast<std::size_t>(id)].seconds();
    load.value_bytes += node.output.shape.elements() * rows * static_cast<std::int64_t>(sizeof(float));
    std::int64_t floats = 0;
    for (const ParameterSpec& spec : node.layer->parameters(part.graph.input_specs(id))) {
      floats += spec.shape.elements();
    }
    load.kept_bytes += floats * copies * static_cast<std::int64_t>(sizeof(float));
    load.seconds +=
        update_seconds(floats, step.optimizer_slots, step.machine) / static_cast<double>(step.micro_batches);
    load.seconds += step.micro_batches > 1 ? accumulate_seconds(floats, step.machine) : 0;
    if (next < loads.size() && node.name == graph.nodes()[next].name) {
      ++next;
    }
  }
  return loads;
}

}  // namespace

Partition choose_partition(const Graph& graph, const ParameterTable& table, const CutRequest& request) {
  if (static_cast<int>(graph.nodes().size()) - 1 < request.stages) {
    throw InputError(fmt::format("--stages {}: expected at most {}, the layers of model {}", request.stages,
                                 graph.nodes().size() - 1, graph.name()));
  }
  Partition partition = uncut(graph);
  partition.tensor = request.tensor;
  if (request.tensor > 1) {
    partition.cuts = CutSearch(graph, table, request).best();
  }
  const StageSearch search(node_loads(graph, table, partition, request), request);
  partition.stage = search.best(request.memory_limit);
  if (partition.stage.empty()) {
    partition.stage = search.best(0);
  }
  partition.stages = request.stages;
  return partition;
}

Prediction predict(const Graph& graph, const ParameterTable& table, const Partition& partition,
                   const SimulatedStep& step, const ArenaBytes& arena) {
  const std::vector<NetworkPart> parts = all_parts(graph, table, partition);
  const SimulatedTimes times = simulate(parts, partition.tensor, step);
  Prediction prediction;
  prediction.step_seconds = times.step_seconds;
  double waits = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    ProcessPrediction own = {.stage = static_cast<int>(i) / partition.tensor,
                             .position = static_cast<int>(i) % partition.tensor,
                             .time = times.processes[i],
                             .memory = {},
                             .parameters = parts[i].table.parameter_count()};
    own.memory = part_memory(parts[i], own.stage, partition.stages, step, arena);
    prediction.most_memory = std::max(prediction.most_memory, own.memory.total());
    waits += own.time.stage_wait + own.time.end_wait;
    prediction.processes.push_back(std::move(own));
  }
  const double all = times.step_seconds * static_cast<double>(parts.size());
  prediction.bubble = partition.stages > 1 && all > 0 ? waits / all : 0;
  return prediction;
}

}  // namespace distbelief
