// The gradient of a batch where the network is cut over processes. The stages of a pipeline work on different
// micro-batches at the same time: each does its turns in the order that pipeline_turns() says, and waits, inside of its
// exchange layers, for what it needs from others.
#include "base/parallel.h"
#include "exec/replica_lane.h"

namespace distbelief {

LossSums Replica::compute_part_gradient(const Batch& batch, GradientListener* listener) {
  set_thread_count(options_.threads);
  Lane& lane = *lanes_[0];
  const std::span<float> gradient = allocate_gradient(lane);
  const std::span<float> observed = gradient.subspan(static_cast<std::size_t>(table_.optimized_size()));
  const std::int64_t rows = batch.size();
  const std::int64_t parts = std::min(options_.micro_batches, rows);
  PartLinks& links = *options_.links;
  PartialSums partial_sums(links, gradient, options_.partial_gradients, listener);
  Accumulator accumulator(lane, table_.optimized_size(), &partial_sums);
  const std::int64_t slots = pipeline_slots(options_.order, links.stage(), links.stages(), parts);
  // One micro-batch after the other needs no second forward pass.
  const bool recompute = options_.recompute && slots > 1;
  lane.slots.resize(std::max(lane.slots.size(), static_cast<std::size_t>(slots)));
  lane.sums = {};
  for (const PipelineTurn& turn : pipeline_turns(options_.order, links.stage(), links.stages(), parts)) {
    const std::int64_t first = rows * turn.micro_batch / parts;
    const std::int64_t count = rows * (turn.micro_batch + 1) / parts - first;
    const auto place = static_cast<std::size_t>(turn.micro_batch % slots);
    Program& compiled = program(lane, count, Purpose::training, recompute ? 0 : place);
    Lane::Slot& slot = lane.slots[place];
    StepContext step = context(batch, first, count, true);
    if (recompute) {
      if (slot.kept == nullptr) {
        slot.kept = std::make_unique<ReceivedValues>();
      }
      step.exchange = slot.kept.get();
    }
    if (turn.forward) {
      if (recompute) {
        slot.kept->begin(links);
      }
      compiled.load(batch, first);
      compiled.forward(step);
      lane.sums += compiled.evaluate_loss();
      slot.observed.assign(observed.begin(), observed.end());
      continue;
    }
    if (recompute) {
      slot.kept->begin_again();
      compiled.load(batch, first);
      compiled.forward(step);
      (void)compiled.evaluate_loss();  // for its gradient
      step.exchange = &links;
    }
    std::ranges::copy(slot.observed, observed.begin());  // other forward passes have been since
    const bool last = turn.micro_batch + 1 == parts;
    GradientListener* const final_pass = parts > 1 ? static_cast<GradientListener*>(&accumulator) : &partial_sums;
    compiled.backward(step, last ? final_pass : nullptr, lane.number);
    if (!last) {
      accumulator.keep(turn.micro_batch == 0);
    } else if (parts > 1) {
      accumulator.finish(parts, table_.optimized_size());
    }
  }
  partial_sums.final_from(lane.number, 0);
  LossSums sums = lane.sums;
  links.share(sums);
  gradient_parts_.assign(1, gradient);
  return sums;
}

void Replica::share(LossSums& sums) const {
  if (options_.links != nullptr) {
    options_.links->share(sums);
  }
}

}  // namespace distbelief
