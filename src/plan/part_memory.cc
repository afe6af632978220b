#include "plan/part_memory.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "graph/exchanges/halo_exchange.h"
#include "graph/exchanges/shared_batch_norm.h"
#include "graph/exchanges/stage_exchange.h"
#include "graph/exchanges/tensor_exchange.h"
#include "tensor/buffer.h"

namespace distbelief {
namespace {

constexpr std::int64_t kFloat = sizeof(float);
// The most memory (VmHWM) of a worker whose network has a few numbers only is 24 MiB; larger ones make more primitives.
constexpr std::int64_t kProgramBytes = std::int64_t{32} << 20;
constexpr std::int64_t kCopiesOfAMessage = 3;
/// In which parameters go to files and come from them, through the first process, as
/// FloatArray::kPieceFloats says; two at a time.
constexpr std::int64_t kPieceOfAFile = std::int64_t{4} << 20;

std::int64_t buffer_of(std::int64_t bytes) {
  return static_cast<std::int64_t>(Buffer::memory_of(static_cast<std::size_t>(bytes)));
}

std::int64_t bytes_for(const Node& node, std::int64_t rows) {
  return node.output.kind == ValueKind::sparse ? 0 : node.output.shape.elements() * rows * kFloat;
}

/// Layers whose output is their input's memory.
bool adds_no_value(const Layer& layer) {
  if (const auto* exchange = dynamic_cast<const TensorExchange*>(&layer)) {
    using enum TensorExchangeOptions::Kind;
    const TensorExchangeOptions::Kind kind = exchange->options().kind;
    return kind == use || kind == sum || kind == sum_and_use;
  }
  constexpr std::array<std::string_view, 4> kTypes = {"flatten", "reshape", "send", "dropout"};
  return std::ranges::find(kTypes, layer.type()) != kTypes.end();
}

bool is_within_stage(const Layer& layer) {
  return dynamic_cast<const TensorExchange*>(&layer) != nullptr || dynamic_cast<const HaloExchange*>(&layer) != nullptr;
}

/// Values that came from other stages, which are kept where the rest is computed again.
std::int64_t received_bytes(const Graph& part, std::int64_t rows) {
  std::int64_t bytes = 0;
  for (const Node& node : part.nodes()) {
    bytes += dynamic_cast<const ReceiveValue*>(node.layer.get()) != nullptr ? bytes_for(node, rows) : 0;
  }
  return bytes;
}

}  // namespace

std::int64_t estimated_arena_bytes(const NetworkPart& part, std::int64_t rows) {
  const Graph graph = part.graph.fused();
  const std::vector<Backward> backward = backward_of(graph, part.table);
  std::int64_t kept = bytes_for(graph.node(0), rows);
  std::int64_t largest = 0;
  std::int64_t scratch = 0;
  for (NodeId id = 1; id <= graph.output(); ++id) {
    const Node& node = graph.node(id);
    const std::int64_t output = bytes_for(node, rows);
    std::int64_t here = output;  // its gradient and those of its inputs
    for (const NodeId input : node.inputs) {
      here += bytes_for(graph.node(input), rows);
    }
    largest = std::max(largest, here);
    if (!adds_no_value(*node.layer) && is_within_stage(*node.layer)) {  // the whole beside everybody's slices
      scratch = std::max(scratch, 2 * std::max(output, bytes_for(graph.node(node.inputs[0]), rows)));
    }
    if (dynamic_cast<const SharedBatchNorm*>(node.layer.get()) != nullptr) {  // a second part of its gradient
      scratch = std::max(scratch, output);
    }
    kept += adds_no_value(*node.layer) || !backward[static_cast<std::size_t>(id)].runs() ? 0 : output;
  }
  return kept + largest + scratch;
}

PartMemory part_memory(const NetworkPart& part, int stage, int stages, const SimulatedStep& step,
                       const ArenaBytes& arena) {
  const std::int64_t micro_batches = std::min(step.micro_batches, step.rows);
  const std::int64_t rows = step.micro_batch_rows();
  const std::int64_t slots = pipeline_slots(step.order, stage, stages, micro_batches);
  PartMemory memory;
  memory.program = kProgramBytes;
  memory.messages = 2 * std::min(part.table.size() * kFloat, kPieceOfAFile);
  for (const Node& node : part.graph.nodes()) {
    if (node.layer != nullptr && is_exchange(*node.layer)) {
      memory.messages = std::max(memory.messages, kCopiesOfAMessage * bytes_for(node, rows));
    }
  }
  memory.parameters = buffer_of(part.table.size() * kFloat);
  memory.gradients = memory.parameters * (micro_batches > 1 ? 2 : 1);
  memory.optimizer = buffer_of(part.table.optimized_size() * kFloat) * step.optimizer_slots;
  const bool recomputes = step.recompute && slots > 1;
  memory.activations = buffer_of(arena(part, rows)) * (recomputes ? 1 : slots);
  memory.activations += recomputes ? slots * received_bytes(part.graph, rows) : 0;
  return memory;
}

}  // namespace distbelief
