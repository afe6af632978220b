#include "strategy/root_update.h"

#include <algorithm>
#include <array>
#include <functional>

namespace distbelief {
namespace {

constexpr std::size_t kMostCulpritBytes = 256;

}  // namespace

RootUpdate::RootUpdate(Replica& replica, const UpdateRule& rule, Group& group, const GroupOptions& options)
    : replica_(replica), group_(group), options_(options), exchange_(group, options.most_rows) {
  if (group.position() == 0) {
    shard_.emplace(replica.table(), replica.table().everything(), rule, replica.values());
  }
}

StepReport RootUpdate::join() {
  const Outcome outcome =
      group_.broadcast(std::as_writable_bytes(replica_.values()), 0, Clock::now() + options_.patience);
  return outcome.ok() ? StepReport{} : lost_report(outcome);
}

StepReport RootUpdate::step(BatchStream& batches, const StepRequest& request) {
  const Batch* batch = batches.next();
  if (batch == nullptr) {
    return {.outcome = StepReport::Outcome::end_of_epoch};
  }
  const Clock::time_point deadline = Clock::now() + options_.patience;
  const std::vector<std::span<float>> lanes = replica_.gradient_memory(batch->size());
  const LossSums sums = compute_or_zero(replica_, *batch, lanes, nullptr);
  for (std::size_t lane = 1; lane < lanes.size(); ++lane) {
    std::ranges::transform(lanes[0], lanes[lane], lanes[0].begin(), std::plus<>());
  }
  if (const Outcome outcome = group_.reduce(lanes[0], 0, deadline); !outcome.ok()) {
    return lost_report(outcome);
  }
  const StepExchange::Own own = {*batch, sums, contributions(*batch, lanes), request.stop};
  return exchange_.finish_step(
      replica_, own, batches, deadline, [&](const StepExchange::Told& told, WholeUpdate& update) {
        if (shard_) {
          average_observed(replica_.table(), lanes[0], told.contributions);
          const std::array<std::span<const float>, 1> parts = {lanes[0]};
          update = apply_to_whole(*shard_, replica_, batch->epoch, parts, told.sums.rows, request.update);
        }
        return share(update, deadline);
      });
}

Outcome RootUpdate::share(WholeUpdate& update, Clock::time_point deadline) {
  struct Verdict {
    bool applied;
    std::array<char, kMostCulpritBytes> culprit;
  } verdict = {update.applied, {}};
  update.culprit.copy(verdict.culprit.data(), kMostCulpritBytes - 1);
  Outcome outcome = group_.broadcast(std::as_writable_bytes(std::span(&verdict, 1)), 0, deadline);
  if (outcome.ok() && verdict.applied) {
    outcome = group_.broadcast(std::as_writable_bytes(replica_.values()), 0, deadline);
  }
  if (outcome.ok()) {
    update = {verdict.applied, verdict.culprit.data()};
  }
  return outcome;
}

void RootUpdate::visit_state(StateVisitor& visitor) {
  if (shard_) {
    shard_->visit_state(visitor);
  }
}

}  // namespace distbelief
