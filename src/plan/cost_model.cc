#include "plan/cost_model.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "graph/exchanges/halo_exchange.h"
#include "graph/exchanges/stage_exchange.h"
#include "graph/exchanges/tensor_exchange.h"

namespace distbelief {
namespace {

using Kind = TensorExchangeOptions::Kind;

double bytes_of(const ValueSpec& value) { return static_cast<double>(value.shape.elements()) * sizeof(float); }

/// Messages that one process sends one after the other, and their bytes together.
struct Sent {
  double messages = 0;
  double bytes = 0;
  Sent& operator+=(const Sent& other) {
    messages += other.messages;
    bytes += other.bytes;
    return *this;
  }
};

Sent sum_over(int processes, double bytes) {
  return {2 * std::ceil(std::log2(processes)), 2 * bytes * (processes - 1) / processes};
}
/// Each gives the others its slice of a whole, or has theirs of each.
Sent slices_over(int processes, double whole) { return {1, whole * (processes - 1) / processes}; }

Sent exchange_of(const TensorExchange& layer, const ValueSpec& input, const ValueSpec& output, int tensor) {
  Sent sent;
  switch (layer.options().kind) {
    case Kind::use:
    case Kind::sum:
      sent = sum_over(tensor, bytes_of(output));
      break;
    case Kind::sum_and_use:
      sent = sum_over(tensor, bytes_of(output));
      sent += sent;
      break;
    case Kind::gather:
      sent = slices_over(tensor, bytes_of(output));
      break;
    case Kind::gather_and_use:
      sent = slices_over(tensor, bytes_of(output));
      sent += sent;
      break;
    case Kind::slice:
      sent = slices_over(tensor, bytes_of(input));
      break;
    case Kind::sum_slice:
      sent = slices_over(tensor, bytes_of(input));
      sent += sent;
      break;
  }
  return sent;
}

Sent exchange_of(const HaloExchange& layer, const ValueSpec& input, int tensor) {
  const HaloExchangeOptions& options = layer.options();
  if (options.whole) {
    return sum_over(tensor, bytes_of(input));  // of gradients
  }
  const auto self = static_cast<std::size_t>(options.position);
  const RowsNeeded& needed = options.needed[self];
  const std::int64_t above = std::max<std::int64_t>(0, options.bounds[self] - std::max<std::int64_t>(0, needed.begin));
  const std::int64_t below =
      std::max<std::int64_t>(0, std::min(options.rows, needed.end) - options.bounds[self + 1]);
  const double row = bytes_of(input) / static_cast<double>(input.shape[2]);
  return {2, 2 * row * static_cast<double>(above + below)};
}

}  // namespace

NodeCost cost_of(const Graph& part, NodeId id, std::int64_t rows, int tensor, const MachineModel& machine) {
  const Node& node = part.node(id);
  if (node.layer == nullptr) {
    return {};
  }
  const std::vector<ValueSpec> inputs = part.input_specs(id, rows);
  const ValueSpec output = {node.output.shape.with_batch(rows), node.output.kind};
  std::optional<Sent> sent;
  if (const auto* exchange = dynamic_cast<const TensorExchange*>(node.layer.get())) {
    sent = exchange_of(*exchange, inputs[0], output, tensor);
  } else if (const auto* halo = dynamic_cast<const HaloExchange*>(node.layer.get())) {
    sent = exchange_of(*halo, inputs[0], tensor);
  } else if (dynamic_cast<const SendValue*>(node.layer.get()) != nullptr ||
             dynamic_cast<const ReceiveValue*>(node.layer.get()) != nullptr) {
    sent = Sent{1, bytes_of(output)};
  }
  if (sent) {
    return {.exchange = sent->messages * machine.link_latency + sent->bytes / machine.link_bandwidth,
            .sent_bytes = static_cast<std::int64_t>(sent->bytes)};
  }
  double touched = bytes_of(output);
  for (const ValueSpec& input : inputs) {
    touched += bytes_of(input);
  }
  const double forward = static_cast<double>(node.layer->flops(inputs)) / machine.flops + touched / machine.memory_bandwidth;
  return {.forward = forward, .backward = (node.layer->parameters(inputs).empty() ? 1 : 2) * forward};
}

}  // namespace distbelief
