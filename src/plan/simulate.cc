#include "plan/simulate.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/check.h"
#include "graph/exchanges/halo_exchange.h"
#include "graph/exchanges/stage_exchange.h"
#include "plan/layer_times.h"

namespace distbelief {
namespace {

/// Of the sums over copies: what is final last is summed when nothing is left to compute.
constexpr double kMostHidden = 7.0 / 8;

/// One thing that a process does in a pass over a micro-batch.
struct Action {
  enum class Kind : std::uint8_t { compute, meet, send, receive } kind = Kind::compute;
  double seconds = 0;  ///< of computing, of the links
  std::int64_t sent_bytes = 0;
  int value = 0;               ///< send and receive: which
  std::vector<int> with = {};  ///< meet: positions that this one needs something of
};

/// What a process does in each pass, and how far it is.
struct Process {
  std::vector<Action> forward;
  std::vector<Action> again;  ///< forward a second time, where values are recomputed
  std::vector<Action> backward;
  std::vector<PipelineTurn> turns;
  std::size_t turn = 0;
  std::size_t action = 0;
  double slowness = 1;
  PassFactors whole = {};
  double now = 0;
  double link_free = 0;  ///< its last message has left
  ProcessTime time;
};

/// The positions whose rows one needs, or who need some of its.
std::vector<int> halo_peers(const HaloExchangeOptions& options) {
  std::vector<int> peers;
  const auto self = static_cast<std::size_t>(options.position);
  const auto overlaps = [&](const RowsNeeded& rows, std::size_t of) {
    return rows.begin < options.bounds[of + 1] && rows.end > options.bounds[of];
  };
  for (std::size_t i = 0; i < options.needed.size(); ++i) {
    if (i != self && (options.whole || overlaps(options.needed[self], i) || overlaps(options.needed[i], self))) {
      peers.push_back(static_cast<int>(i));
    }
  }
  return peers;
}

/// Values that pass between stages: whose gradients come back.
std::map<int, bool> values_with_gradient(const std::vector<NetworkPart>& parts) {
  std::map<int, bool> values;
  for (const NetworkPart& part : parts) {
    for (const Node& node : part.graph.nodes()) {
      if (const auto* receive = dynamic_cast<const ReceiveValue*>(node.layer.get())) {
        values[receive->options().value] = receive->options().wants_gradient;
      }
    }
  }
  return values;
}

class Simulation {
 public:
  Simulation(const std::vector<NetworkPart>& parts, int tensor, const SimulatedStep& step)
      : step_(step), tensor_(tensor), stages_(static_cast<int>(parts.size()) / tensor) {
    const std::map<int, bool> gradients = values_with_gradient(parts);
    const std::int64_t micro_batches = std::min(step.micro_batches, step.rows);
    const std::int64_t rows = step.micro_batch_rows();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      Process process;
      const int stage = static_cast<int>(i) / tensor;
      process.turns = pipeline_turns(step.order, stage, stages_, micro_batches);
      process.slowness = step.slowness.empty() ? 1 : step.slowness.at(i);
      process.whole = step.whole_parts.empty() ? PassFactors{} : step.whole_parts.at(i);
      add_actions(parts[i], rows, gradients, process);
      if (step.recompute && pipeline_slots(step.order, stage, stages_, micro_batches) > 1) {
        process.again = process.forward;
        std::erase_if(process.again, [](const Action& action) {
          return action.kind == Action::Kind::send || action.kind == Action::Kind::receive;
        });
      }
      processes_.push_back(std::move(process));
    }
  }

  SimulatedTimes run(const std::vector<NetworkPart>& parts) {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t i = 0; i < processes_.size(); ++i) {
        while (advance(static_cast<int>(i))) {
          moved = true;
        }
      }
    }
    SimulatedTimes result;
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      Process& process = processes_[i];
      check(process.turn == process.turns.size(), "no process waits for ever");
      finish(parts[i], process);
      result.step_seconds = std::max(result.step_seconds, process.now);
    }
    for (Process& process : processes_) {
      process.time.end_wait += result.step_seconds - process.now;
      result.processes.push_back(process.time);
    }
    return result;
  }

 private:
  /// A value, or its gradient, of a micro-batch, between two processes of the same position.
  using Message = std::tuple<int, bool, std::int64_t, int>;
  /// Where processes of a stage meet: stage, turn and action, which are the same for all of them.
  using Meeting = std::tuple<int, std::size_t, std::size_t>;

  void add_actions(const NetworkPart& part, std::int64_t rows, const std::map<int, bool>& gradients, Process& process) {
    const std::vector<NodeCost> costs = node_costs(part.graph, part.table, rows, tensor_, step_.machine);
    const std::vector<Backward> backward = backward_of(part.graph, part.table);
    std::vector<Action> reversed;
    for (std::size_t i = 1; i < costs.size(); ++i) {
      const Layer* layer = part.graph.nodes()[i].layer.get();
      const NodeCost& cost = costs[i];
      const auto bytes = static_cast<std::int64_t>(
          static_cast<std::size_t>(part.graph.nodes()[i].output.shape.elements() * rows) * sizeof(float));
      if (const auto* send = dynamic_cast<const SendValue*>(layer)) {
        const int value = send->options().value;
        process.forward.push_back({Action::Kind::send, cost.forward_exchange, bytes, value});
        if (gradients.at(value)) {
          reversed.push_back({Action::Kind::receive, 0, 0, value});
        }
      } else if (const auto* receive = dynamic_cast<const ReceiveValue*>(layer)) {
        const int value = receive->options().value;
        process.forward.push_back({Action::Kind::receive, 0, 0, value});
        if (receive->options().wants_gradient) {
          reversed.push_back({Action::Kind::send, cost.backward_exchange, bytes, value});
        }
      } else {
        const bool computes = !is_exchange(*layer);
        const auto* halo = dynamic_cast<const HaloExchange*>(layer);
        std::vector<int> with = halo != nullptr ? halo_peers(halo->options()) : std::vector<int>();
        for (int other = 0; halo == nullptr && other < tensor_; ++other) {
          with.push_back(other);
        }
        const std::int64_t forward_bytes = cost.exchange() > 0
                                               ? static_cast<std::int64_t>(static_cast<double>(cost.sent_bytes) *
                                                                           cost.forward_exchange / cost.exchange())
                                               : 0;
        if (computes) {
          process.forward.push_back({Action::Kind::compute, process.slowness * process.whole.forward * cost.forward});
        }
        // All that share the stage must find the same meetings, whether they get something at them or not.
        if (cost.forward_exchange > 0 || (halo != nullptr && !halo->options().whole)) {
          process.forward.push_back({Action::Kind::meet, cost.forward_exchange, forward_bytes, 0, with});
        }
        if (cost.backward_exchange > 0 || (halo != nullptr && backward[i].inputs)) {
          reversed.push_back({Action::Kind::meet, cost.backward_exchange, cost.sent_bytes - forward_bytes, 0, with});
        }
        if (computes && backward[i].runs()) {
          reversed.push_back({Action::Kind::compute, process.slowness * process.whole.backward * cost.backward});
        }
      }
    }
    process.backward.assign(reversed.rbegin(), reversed.rend());
    if (step_.micro_batches > 1) {
      process.backward.push_back(
          {Action::Kind::compute, process.slowness * accumulate_seconds(part.table.optimized_size(), step_.machine)});
    }
  }

  /// What the process does in a turn; forward again comes before backward.
  const Action* action_at(const Process& process) const {
    const PipelineTurn& turn = process.turns[process.turn];
    const std::size_t before = turn.forward ? 0 : process.again.size();
    if (process.action < before) {
      return &process.again[process.action];
    }
    const std::vector<Action>& actions = turn.forward ? process.forward : process.backward;
    return process.action - before < actions.size() ? &actions[process.action - before] : nullptr;
  }

  /// Does the process's next action, if what it needs is there.
  bool advance(int number) {
    Process& process = processes_[static_cast<std::size_t>(number)];
    if (process.turn == process.turns.size()) {
      return false;
    }
    const Action* action = action_at(process);
    if (action == nullptr) {
      ++process.turn;
      process.action = 0;
      return true;
    }
    const PipelineTurn& turn = process.turns[process.turn];
    switch (action->kind) {
      case Action::Kind::compute:
        process.now += action->seconds;
        process.time.compute += action->seconds;
        break;
      case Action::Kind::send: {
        process.link_free = std::max(process.link_free, process.now) + action->seconds - step_.machine.link_latency;
        arrivals_[{action->value, turn.forward, turn.micro_batch, number % tensor_}] =
            process.link_free + step_.machine.link_latency;
        break;
      }
      case Action::Kind::receive: {
        const auto found = arrivals_.find({action->value, turn.forward, turn.micro_batch, number % tensor_});
        if (found == arrivals_.end()) {
          return false;
        }
        process.time.stage_wait += std::max(0.0, found->second - process.now);
        process.now = std::max(process.now, found->second);
        break;
      }
      case Action::Kind::meet:
        if (!meet(number, process, *action)) {
          return false;
        }
        break;
    }
    process.time.sent_bytes += action->sent_bytes;
    ++process.action;
    return true;
  }

  bool meet(int number, Process& process, const Action& action) {
    std::map<int, double>& came = meetings_[{number / tensor_, process.turn, process.action}];
    came.emplace(number % tensor_, process.now);
    double begin = process.now;
    for (const int other : action.with) {
      const auto found = came.find(other);
      if (found == came.end()) {
        return false;
      }
      begin = std::max(begin, found->second);
    }
    process.time.sharer_wait += begin - process.now;
    process.time.exchange += action.seconds;
    process.now = begin + action.seconds;
    return true;
  }

  /// What comes after the last micro-batch.
  void finish(const NetworkPart& part, Process& process) const {
    double shared = 0;
    for (const Range& range : part.partial_gradients) {
      const double bytes = static_cast<double>(range.size()) * sizeof(float);
      const double seconds = sum_seconds(tensor_, bytes, step_.machine);
      process.now += seconds;
      process.time.exchange += seconds;
      shared += bytes * 2 * (tensor_ - 1) / tensor_;
    }
    const std::int64_t floats = part.table.optimized_size();
    const double bytes = static_cast<double>(floats) * sizeof(float);
    // Sums over copies go on while the last backward pass computes the gradients of the layers before.
    double backward = 0;
    for (const Action& action : process.backward) {
      backward += action.seconds;
    }
    const double sums = sum_seconds(step_.replicas, bytes, step_.machine);
    const double seconds = sums - std::min(kMostHidden * sums, backward) +
                           process.slowness * update_seconds(floats, step_.optimizer_slots, step_.machine);
    process.now += seconds;
    process.time.update += seconds;
    process.time.sent_bytes += static_cast<std::int64_t>(shared + 2 * bytes * (step_.replicas - 1) / step_.replicas);
  }

  const SimulatedStep& step_;
  const int tensor_;
  const int stages_;
  std::vector<Process> processes_;
  std::map<Message, double> arrivals_;
  std::map<Meeting, std::map<int, double>> meetings_;
};

}  // namespace

std::int64_t SimulatedStep::micro_batch_rows() const {
  const std::int64_t count = std::clamp<std::int64_t>(micro_batches, 1, std::max<std::int64_t>(1, rows));
  return std::max<std::int64_t>(1, (rows + count - 1) / count);
}

std::vector<PassFactors> whole_part_factors(const std::vector<NetworkPart>& parts, int tensor,
                                            const SimulatedStep& step) {
  std::vector<PassFactors> factors;
  const std::int64_t rows = step.micro_batch_rows();
  for (const NetworkPart& part : parts) {
    const std::optional<LayerTime> whole =
        step.machine.times != nullptr ? step.machine.times->time_of_part(part, rows) : std::nullopt;
    LayerTime layers;
    for (const NodeCost& cost : node_costs(part.graph, part.table, rows, tensor, step.machine)) {
      layers.forward += cost.forward;
      layers.backward += cost.backward;
    }
    if (!whole || layers.forward <= 0 || layers.backward <= 0) {
      return {};
    }
    factors.push_back({whole->forward / layers.forward, whole->backward / layers.backward});
  }
  return factors;
}

std::vector<NetworkPart> all_parts(const Graph& graph, const ParameterTable& table, const Partition& partition) {
  std::vector<NetworkPart> parts;
  for (int stage = 0; stage < partition.stages; ++stage) {
    for (int position = 0; position < partition.tensor; ++position) {
      parts.push_back(part_of(graph, table, partition, stage, position));
    }
  }
  return parts;
}

SimulatedTimes simulate(const std::vector<NetworkPart>& parts, int tensor, const SimulatedStep& step) {
  return Simulation(parts, tensor, step).run(parts);
}

SimulatedTimes simulate(const Graph& graph, const ParameterTable& table, const Partition& partition,
                        const SimulatedStep& step) {
  return simulate(all_parts(graph, table, partition), partition.tensor, step);
}

}  // namespace distbelief
