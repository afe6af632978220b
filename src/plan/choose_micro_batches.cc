#include "plan/choose_micro_batches.h"

#include <algorithm>

#include "graph/layers/batch_norm.h"

namespace distbelief {
namespace {

constexpr std::int64_t kMostMicroBatches = 256;  // that the executor can tell from each other
constexpr double kWorthIt = 0.99;

bool has_batch_norm(const Graph& graph) {
  return std::ranges::any_of(
      graph.nodes(), [](const Node& node) { return dynamic_cast<const BatchNorm*>(node.layer.get()) != nullptr; });
}

/// What a number of micro-batches is worth.
struct Worth {
  bool fits = true;
  double step_seconds = 0;
  bool beats(const Worth& other) const {
    return fits != other.fits ? fits : step_seconds < kWorthIt * other.step_seconds;
  }
};

}  // namespace

std::int64_t choose_micro_batches(const Graph& graph, const ParameterTable& table, const Partition& partition,
                                  const SimulatedStep& step, std::int64_t memory_limit) {
  const std::int64_t fewest_rows = has_batch_norm(graph) ? kFewestRowsOfBatchNorm : 1;
  const std::int64_t most = std::clamp<std::int64_t>(step.rows / fewest_rows, 1, kMostMicroBatches);
  const auto worth_of = [&](std::int64_t micro_batches) {
    SimulatedStep tried = step;
    tried.micro_batches = micro_batches;
    const Prediction prediction = predict(graph, table, partition, tried);
    return Worth{memory_limit == 0 || prediction.most_memory <= memory_limit, prediction.step_seconds};
  };
  const std::int64_t first = std::clamp<std::int64_t>(step.micro_batches, 1, most);
  std::int64_t best = first;
  Worth worth = worth_of(best);
  const auto go_on = [&](const auto& next_to) {
    for (std::int64_t next = next_to(best); next != best && next >= 1 && next <= most; next = next_to(best)) {
      const Worth other = worth_of(next);
      // More micro-batches may be needed for the memory, whether or not the next step towards them is quicker.
      const bool nearer = next > best && !worth.fits && !other.fits;
      if (!other.beats(worth) && !nearer) {
        return;
      }
      best = next;
      worth = other;
    }
  };
  go_on([](std::int64_t count) { return 2 * count; });
  if (best == first) {
    go_on([](std::int64_t count) { return count / 2; });
  }
  return best;
}

}  // namespace distbelief
