#include "plan/cost_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "graph/exchanges/halo_exchange.h"
#include "graph/exchanges/shared_batch_norm.h"
#include "graph/exchanges/stage_exchange.h"
#include "graph/exchanges/tensor_exchange.h"
#include "plan/layer_times.h"
#include "plan/parameter_layout.h"

namespace distbelief {
namespace {

using Kind = TensorExchangeOptions::Kind;

double bytes_of(const ValueSpec& value) { return static_cast<double>(value.shape.elements()) * sizeof(float); }

/// Rounds in which one process sends, and messages and bytes of all of them together.
struct Sent {
  double rounds = 0;
  double messages = 0;
  double bytes = 0;
};
struct SentBothWays {
  Sent forward = {};
  Sent backward = {};
};

Sent sum_over(int processes, double bytes) {
  const double rounds = 2 * std::ceil(std::log2(processes));
  return {rounds, rounds, 2 * bytes * (processes - 1) / processes};
}
/// Each gives the others its slice of a whole, or has theirs of each.
Sent slices_over(int processes, double whole) {
  return {1, static_cast<double>(processes - 1), whole * (processes - 1) / processes};
}

SentBothWays exchange_of(const TensorExchange& layer, const ValueSpec& input, const ValueSpec& output, int tensor) {
  const Sent sum = sum_over(tensor, bytes_of(output));
  const Sent gathered = slices_over(tensor, bytes_of(output));
  const Sent taken = slices_over(tensor, bytes_of(input));
  switch (layer.options().kind) {
    case Kind::use:
      return {.backward = sum};
    case Kind::sum:
      return {.forward = sum};
    case Kind::sum_and_use:
      return {sum, sum};
    case Kind::gather:
      return {.forward = gathered};
    case Kind::gather_and_use:
      return {gathered, gathered};
    case Kind::slice:
      return {.backward = taken};
    case Kind::sum_slice:
      return {taken, taken};
  }
  return {};
}

SentBothWays exchange_of(const HaloExchange& layer, const ValueSpec& input, int tensor) {
  const HaloExchangeOptions& options = layer.options();
  if (options.whole) {
    return {.backward = sum_over(tensor, bytes_of(input))};
  }
  const auto self = static_cast<std::size_t>(options.position);
  const RowsNeeded& needed = options.needed[self];
  const std::int64_t above = std::max<std::int64_t>(0, options.bounds[self] - std::max<std::int64_t>(0, needed.begin));
  const std::int64_t below = std::max<std::int64_t>(0, std::min(options.rows, needed.end) - options.bounds[self + 1]);
  const double row = bytes_of(input) / static_cast<double>(input.shape[2]);
  const Sent sent = {1, 2, row * static_cast<double>(above + below)};
  return {sent, sent};
}

/// What passes links at a node; nothing where it computes.
std::optional<SentBothWays> sent_at(const Node& node, const std::vector<ValueSpec>& inputs, const ValueSpec& output,
                                    int tensor) {
  if (const auto* exchange = dynamic_cast<const TensorExchange*>(node.layer.get())) {
    return exchange_of(*exchange, inputs[0], output, tensor);
  }
  if (const auto* halo = dynamic_cast<const HaloExchange*>(node.layer.get())) {
    return exchange_of(*halo, inputs[0], tensor);
  }
  if (dynamic_cast<const SendValue*>(node.layer.get()) != nullptr) {
    return SentBothWays{.forward = {1, 1, bytes_of(output)}};
  }
  if (const auto* receive = dynamic_cast<const ReceiveValue*>(node.layer.get())) {
    return receive->options().wants_gradient ? SentBothWays{.backward = {1, 1, bytes_of(output)}} : SentBothWays{};
  }
  return std::nullopt;
}

/// The sums that layers make in the middle of their work.
SentBothWays sums_inside(const SharedBatchNorm& norm, const ValueSpec& input, int tensor) {
  const auto all = [&](const std::vector<std::int64_t>& floats) {
    Sent sent;
    for (const std::int64_t count : floats) {
      const Sent one = sum_over(tensor, static_cast<double>(count) * sizeof(float));
      sent = {sent.rounds + one.rounds, sent.messages + one.messages, sent.bytes + one.bytes};
    }
    return sent;
  };
  const std::int64_t channels = input.shape[1];
  return {all(norm.forward_sums(channels)), all(norm.backward_sums(channels))};
}

/// Batch norm of shared rows goes over its values more often than one that is alone: for statistics before it
/// normalises, and for what the sums of all change in the gradient. By the bytes that it reads and writes.
constexpr double kSharedNormForward = 1.5;
constexpr double kSharedNormBackward = 1.8;

LayerTime time_when_shared(const LayerTime& alone) {
  return {kSharedNormForward * alone.forward, kSharedNormBackward * alone.backward};
}

std::optional<LayerTime> measured_time(const Layer& layer, const std::vector<ValueSpec>& inputs, Backward backward,
                                       LayerTimes& times) {
  if (const auto* shared = dynamic_cast<const SharedBatchNorm*>(&layer)) {
    const std::optional<LayerTime> alone = times.time_of(shared->alone(), inputs, backward);
    return alone ? std::optional(time_when_shared(*alone)) : std::nullopt;
  }
  return times.time_of(layer, inputs, backward);
}

LayerTime computed_time(const Node& node, const std::vector<ValueSpec>& inputs, const ValueSpec& output,
                        Backward backward, const MachineModel& machine) {
  double touched = bytes_of(output);
  for (const ValueSpec& input : inputs) {
    touched += input.kind == ValueKind::sparse ? 0 : bytes_of(input);
  }
  for (const ParameterSpec& spec : node.layer->parameters(inputs)) {
    touched += spec.row_floats > 0 ? 0 : static_cast<double>(spec.shape.elements()) * sizeof(float);
  }
  const double once =
      std::max(static_cast<double>(node.layer->flops(inputs)) / machine.flops, touched / machine.memory_bandwidth);
  const LayerTime time = {once, once * ((backward.parameters ? 1 : 0) + (backward.inputs ? 1 : 0))};
  return dynamic_cast<const SharedBatchNorm*>(node.layer.get()) != nullptr ? time_when_shared(time) : time;
}

}  // namespace

bool is_exchange(const Layer& layer) {
  return dynamic_cast<const TensorExchange*>(&layer) != nullptr ||
         dynamic_cast<const HaloExchange*>(&layer) != nullptr || dynamic_cast<const SendValue*>(&layer) != nullptr ||
         dynamic_cast<const ReceiveValue*>(&layer) != nullptr;
}

std::vector<Backward> backward_of(const Graph& part, const ParameterTable& table) {
  std::vector<Backward> all(part.nodes().size());
  std::vector<bool> trained(all.size(), false);  // the value has a gradient
  for (NodeId id = 1; id <= part.output(); ++id) {
    const Node& node = part.node(id);
    Backward& own = all[static_cast<std::size_t>(id)];
    own.inputs =
        std::ranges::any_of(node.inputs, [&](NodeId input) { return trained[static_cast<std::size_t>(input)]; });
    for (const ParameterSpec& spec : node.layer->parameters(part.input_specs(id))) {
      const ParameterEntry* entry = table.find(parameter_name(node, spec));
      own.parameters = own.parameters || (spec.kind == ParameterKind::optimized && entry != nullptr && !entry->frozen);
    }
    const auto* receive = dynamic_cast<const ReceiveValue*>(node.layer.get());
    trained[static_cast<std::size_t>(id)] = own.runs() || (receive != nullptr && receive->options().wants_gradient);
  }
  return all;
}

std::vector<NodeCost> node_costs(const Graph& part, const ParameterTable& table, std::int64_t rows, int tensor,
                                 const MachineModel& machine) {
  std::vector<NodeCost> costs(part.nodes().size());
  // What is measured is what runs: neighbours that are merged count where the first of them is.
  const std::vector<Backward> backward = backward_of(part, table);
  std::map<std::string, NodeId> whole;
  for (NodeId id = 0; id <= part.output(); ++id) {
    whole.emplace(part.node(id).name, id);
  }
  std::vector<bool> measured(part.nodes().size(), false);
  if (machine.times != nullptr) {
    const Graph merged = part.fused();
    std::vector<bool> alone(part.nodes().size(), false);
    for (NodeId id = 1; id <= merged.output(); ++id) {
      const Node& node = merged.node(id);
      const auto at = static_cast<std::size_t>(whole.at(node.name));
      alone[at] = true;
      if (is_exchange(*node.layer)) {
        continue;
      }
      const std::vector<ValueSpec> inputs = merged.input_specs(id, rows);
      if (const std::optional<LayerTime> time = measured_time(*node.layer, inputs, backward[at], *machine.times)) {
        costs[at] = {.forward = time->forward, .backward = time->backward};
        measured[at] = true;
      }
    }
    for (std::size_t i = 1; i < alone.size(); ++i) {
      std::size_t into = i;
      while (!alone[into]) {
        into = static_cast<std::size_t>(part.nodes()[into].inputs[0]);
      }
      measured[i] = measured[into];
    }
  }
  for (NodeId id = 1; id <= part.output(); ++id) {
    const auto at = static_cast<std::size_t>(id);
    const Node& node = part.node(id);
    const std::vector<ValueSpec> inputs = part.input_specs(id, rows);
    const ValueSpec output = {node.output.shape.with_batch(rows), node.output.kind};
    if (const std::optional<SentBothWays> sent = sent_at(node, inputs, output, tensor)) {
      // Values are put together and taken apart in memory before and after they pass.
      const double copies = 2 * (bytes_of(inputs[0]) + bytes_of(output)) / machine.memory_bandwidth;
      const auto seconds = [&](const Sent& one) {
        return one.rounds == 0 ? 0 : copies + machine.link_seconds(one.rounds, one.messages, one.bytes);
      };
      const bool back = backward[at].inputs || dynamic_cast<const ReceiveValue*>(node.layer.get()) != nullptr;
      costs[at] = {.forward_exchange = seconds(sent->forward),
                   .backward_exchange = back ? seconds(sent->backward) : 0,
                   .sent_bytes = static_cast<std::int64_t>(sent->forward.bytes + (back ? sent->backward.bytes : 0))};
    } else if (!measured[at]) {
      const LayerTime time = computed_time(node, inputs, output, backward[at], machine);
      costs[at] = {.forward = time.forward, .backward = time.backward};
    }
    if (const auto* shared = dynamic_cast<const SharedBatchNorm*>(node.layer.get())) {
      const SentBothWays sums = sums_inside(*shared, inputs[0], tensor);
      const auto seconds = [&](const Sent& sent) {
        return machine.link_seconds(sent.rounds, sent.messages, sent.bytes);
      };
      const bool back = backward[at].runs();
      costs[at].forward_exchange = seconds(sums.forward);
      costs[at].backward_exchange = back ? seconds(sums.backward) : 0;
      costs[at].sent_bytes = static_cast<std::int64_t>(sums.forward.bytes + (back ? sums.backward.bytes : 0));
    }
  }
  return costs;
}

double update_seconds(std::int64_t parameters, int slots, const MachineModel& machine) {
  // The gradient is read; the value and each slot are read and written.
  return static_cast<double>(parameters) * sizeof(float) * (3 + 2 * slots) / machine.memory_bandwidth;
}

double accumulate_seconds(std::int64_t parameters, const MachineModel& machine) {
  return static_cast<double>(parameters) * sizeof(float) * 3 / machine.memory_bandwidth;
}

double sum_seconds(int processes, double bytes, const MachineModel& machine) {
  if (processes <= 1) {
    return 0;
  }
  const Sent sent = sum_over(processes, bytes);
  return machine.link_seconds(sent.rounds, sent.messages, sent.bytes);
}

}  // namespace distbelief
