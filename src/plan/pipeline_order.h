#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace distbelief {

/// In which order a stage of a pipeline works on the micro-batches of a batch. All forward first, then all backward
/// (GPipe, Huang et al. 2019); or backward as soon as it can, one forward in between (1F1B, Narayanan et al. 2019), so
/// that no more micro-batches wait for their backward than there are stages from here to the last.
enum class PipelineOrder : std::uint8_t { one_forward_one_backward, gpipe };

struct PipelineTurn {
  bool forward = true;
  std::int64_t micro_batch = 0;
  friend bool operator==(const PipelineTurn&, const PipelineTurn&) = default;
};

/// What the stage does, in order. Backward passes come in the order of micro-batches, so that gradients are added up in
/// the same order whatever the pipeline.
std::vector<PipelineTurn> pipeline_turns(PipelineOrder order, int stage, int stages, std::int64_t micro_batches);

/// How many micro-batches at most are between their forward and their backward.
std::int64_t pipeline_slots(PipelineOrder order, int stage, int stages, std::int64_t micro_batches);

}  // namespace distbelief
