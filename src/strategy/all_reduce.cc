#include "strategy/all_reduce.h"

#include <array>

#include "base/check.h"

namespace distbelief {

AllReduce::AllReduce(Replica& replica, const UpdateRule& rule, Group& group, const GroupOptions& options)
    : replica_(replica),
      group_(group),
      options_(options),
      shard_(replica.table(), replica.table().everything(), rule, replica.values()),
      exchange_(group, options.most_rows),
      buckets_(group, replica.table().size(), replica.table().optimized_size()),
      listener_(buckets_) {}

StepReport AllReduce::join() { return copy_from_first(group_, replica_, *this, options_.patience); }

StepReport AllReduce::step(BatchStream& batches, const StepRequest& request) {
  const Batch* batch = batches.next();
  if (batch == nullptr) {
    return {.outcome = StepReport::Outcome::end_of_epoch};
  }
  prepared_.reset();
  const Clock::time_point deadline = Clock::now() + options_.patience;
  const std::vector<std::span<float>> lanes = replica_.gradient_memory(batch->size());
  buckets_.begin(lanes, deadline);
  const LossSums sums = compute_or_zero(replica_, *batch, lanes, &listener_);
  if (const Outcome outcome = buckets_.finish(); !outcome.ok()) {
    return lost_report(outcome);
  }
  const StepExchange::Own own = {
      *batch, sums, contributions(*batch, lanes), {request.stop, request.regroup}, request.costs};
  return exchange_.finish_step(
      replica_, own, batches, deadline, [&](const StepExchange::Told& told, WholeUpdate& update) {
        average_observed(replica_.table(), lanes[0], told.contributions);
        const std::array<std::span<const float>, 1> parts = {lanes[0]};
        const PreparedUpdate ready = prepare_update(replica_, parts, told.sums.rows, request.update);
        if (options_.commit) {
          if (Outcome outcome = options_.commit(deadline); !outcome.ok()) {
            prepared_.emplace(PreparedStep{*batch, told, lanes[0], ready});
            return outcome;
          }
        }
        update = apply_prepared(shard_, replica_, batch->epoch, parts, ready);
        return Outcome{};
      });
}

StepReport AllReduce::finish_prepared(BatchStream& batches) {
  check(prepared_.has_value(), "a step is prepared before it is finished");
  const StepReport report = prepared_->finish(shard_, replica_, batches);
  prepared_.reset();
  return report;
}

void AllReduce::visit_state(StateVisitor& visitor) { shard_.visit_state(visitor); }

}  // namespace distbelief
