#include "exec/thread_mode.h"

namespace distbelief {

std::string_view thread_mode_name(ThreadMode mode) { return mode == ThreadMode::lanes ? "lanes" : "kernels"; }

ThreadMode faster_thread_mode(const Graph& graph, std::int64_t batch, int threads) {
  if (threads < 2 || batch < 2 * threads) {
    return ThreadMode::kernels;
  }
  // Batch norm sees the rows of one lane only, so cutting the batch would change what is computed.
  for (const Node& node : graph.nodes()) {
    if (node.layer != nullptr && node.layer->type() == "batch_norm") {
      return ThreadMode::kernels;
    }
  }
  return ThreadMode::lanes;
}

}  // namespace distbelief
