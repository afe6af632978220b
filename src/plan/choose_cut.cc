#include "plan/choose_cut.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"

namespace distbelief {
namespace {

constexpr int kSweeps = 3;

std::int64_t micro_batch_rows(const CutRequest& request) {
  return std::max<std::int64_t>(1, (request.rows + request.micro_batches - 1) / request.micro_batches);
}

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
    double seconds = 0;
    for (NodeId id = 1; id <= part.graph.output(); ++id) {
      seconds += cost_of(part.graph, id, micro_batch_rows(request_), request_.tensor, request_.machine).seconds();
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

/// Where stages begin: the runs of nodes whose costliest is cheapest.
std::vector<int> choose_stages(const Graph& graph, const std::vector<double>& costs, int stages) {
  const auto nodes = static_cast<int>(graph.nodes().size());
  std::vector<double> before(static_cast<std::size_t>(nodes) + 1, 0);
  for (int i = 0; i < nodes; ++i) {
    before[static_cast<std::size_t>(i) + 1] = before[static_cast<std::size_t>(i)] + costs[static_cast<std::size_t>(i)];
  }
  // least[s][i]: the costliest of s stages that end before node i; node 0 is the input.
  const double none = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> least(static_cast<std::size_t>(stages) + 1,
                                         std::vector<double>(static_cast<std::size_t>(nodes) + 1, none));
  std::vector<std::vector<int>> begins(least.size(), std::vector<int>(static_cast<std::size_t>(nodes) + 1, 1));
  least[0][1] = 0;
  for (std::size_t s = 1; s < least.size(); ++s) {
    for (std::size_t end = 2; end <= static_cast<std::size_t>(nodes); ++end) {
      for (std::size_t begin = 1; begin < end; ++begin) {
        const double worst = std::max(least[s - 1][begin], before[end] - before[begin]);
        if (worst < least[s][end]) {
          least[s][end] = worst;
          begins[s][end] = static_cast<int>(begin);
        }
      }
    }
  }
  std::vector<int> stage(static_cast<std::size_t>(nodes), 0);
  int end = nodes;
  for (int s = stages; s > 0; --s) {
    const int begin = begins[static_cast<std::size_t>(s)][static_cast<std::size_t>(end)];
    std::fill(stage.begin() + begin, stage.begin() + end, s - 1);
    end = begin;
  }
  return stage;
}

/// What each node of the whole network costs one of the processes that share it, exchanges before it included.
std::vector<double> node_costs(const Graph& graph, const ParameterTable& table, const Partition& unstaged,
                               const CutRequest& request) {
  const NetworkPart part = part_of(graph, table, unstaged, 0, 0);
  std::vector<double> costs(graph.nodes().size(), 0);
  std::size_t next = 1;
  for (NodeId id = 1; id <= part.graph.output(); ++id) {
    costs[std::min(next, costs.size() - 1)] +=
        cost_of(part.graph, id, micro_batch_rows(request), request.tensor, request.machine).seconds();
    if (next < costs.size() && part.graph.node(id).name == graph.nodes()[next].name) {
      ++next;
    }
  }
  return costs;
}

}  // namespace

Partition choose_partition(const Graph& graph, const ParameterTable& table, const CutRequest& request) {
  if (static_cast<int>(graph.nodes().size()) - 1 < request.stages) {
    throw InputError(fmt::format("model {}: its {} layers are too few for --stages {}", graph.name(),
                                 graph.nodes().size() - 1, request.stages));
  }
  Partition partition = uncut(graph);
  partition.tensor = request.tensor;
  if (request.tensor > 1) {
    partition.cuts = CutSearch(graph, table, request).best();
  }
  partition.stage = choose_stages(graph, node_costs(graph, table, partition, request), request.stages);
  partition.stages = request.stages;
  return partition;
}

Prediction predict(const Graph& graph, const ParameterTable& table, const Partition& partition,
                   const CutRequest& request) {
  Prediction prediction;
  double busiest = 0;
  for (int stage = 0; stage < partition.stages; ++stage) {
    const NetworkPart part = part_of(graph, table, partition, stage, 0);
    StagePrediction own;
    for (NodeId id = 1; id <= part.graph.output(); ++id) {
      const NodeCost cost =
          cost_of(part.graph, id, micro_batch_rows(request), partition.tensor, request.machine);
      const auto times = static_cast<double>(request.micro_batches);
      own.compute += times * (cost.forward + cost.backward);
      own.exchange += times * cost.exchange;
      own.sent_bytes += request.micro_batches * cost.sent_bytes;
      own.layers += cost.exchange > 0 ? 0 : 1;
    }
    own.parameters = part.table.parameter_count();
    busiest = std::max(busiest, own.compute + own.exchange);
    prediction.stages.push_back(own);
  }
  const double waits = busiest / static_cast<double>(request.micro_batches) * (partition.stages - 1);
  prediction.step_seconds = busiest + waits;
  prediction.bubble = prediction.step_seconds > 0 ? waits / prediction.step_seconds : 0;
  return prediction;
}

}  // namespace distbelief
