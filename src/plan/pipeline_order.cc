#include "plan/pipeline_order.h"

#include <algorithm>

namespace distbelief {

std::int64_t pipeline_slots(PipelineOrder order, int stage, int stages, std::int64_t micro_batches) {
  return order == PipelineOrder::gpipe ? micro_batches
                                       : std::min(micro_batches, static_cast<std::int64_t>(stages - stage));
}

std::vector<PipelineTurn> pipeline_turns(PipelineOrder order, int stage, int stages, std::int64_t micro_batches) {
  std::vector<PipelineTurn> turns;
  const std::int64_t ahead = pipeline_slots(order, stage, stages, micro_batches);
  std::int64_t forward = 0;
  for (std::int64_t backward = 0; backward < micro_batches; ++backward) {
    while (forward < std::min(backward + ahead, micro_batches)) {
      turns.push_back({true, forward++});
    }
    turns.push_back({false, backward});
  }
  return turns;
}

}  // namespace distbelief
