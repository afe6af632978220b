#include "strategy/root_update.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "base/check.h"

namespace distbelief {
namespace {

constexpr std::size_t kMostCulpritBytes = 256;
constexpr std::size_t kMostBytesAtOnce = std::size_t{64} << 20;

/// Shows what is told to the second member.
class TellingVisitor : public StateVisitor {
 public:
  using Tell = std::function<Outcome(std::span<std::byte>)>;
  explicit TellingVisitor(Tell tell) : tell_(std::move(tell)) {}
  void floats(std::string_view /*name*/, std::span<float> values) override { tell(std::as_writable_bytes(values)); }
  void number(std::string_view /*name*/, std::uint64_t& value) override {
    tell(std::as_writable_bytes(std::span(&value, 1)));
  }
  void numbers(std::string_view /*name*/, std::vector<std::uint64_t>& values) override {
    std::uint64_t count = values.size();
    tell(std::as_writable_bytes(std::span(&count, 1)));
    if (outcome_.ok()) {
      values.resize(count);
    }
    tell(std::as_writable_bytes(std::span(values)));
  }
  const Outcome& outcome() const { return outcome_; }

 private:
  void tell(std::span<std::byte> bytes) {
    if (outcome_.ok()) {
      outcome_ = tell_(bytes);
    }
  }
  const Tell tell_;
  Outcome outcome_;
};

}  // namespace

RootUpdate::RootUpdate(Replica& replica, const UpdateRule& rule, Group& group, const GroupOptions& options)
    : replica_(replica), group_(group), options_(options), exchange_(group, options.most_rows) {
  if (group.position() <= 1) {
    shard_.emplace(replica.table(), replica.table().everything(), rule, replica.values());
  }
}

Outcome RootUpdate::tell_second(std::span<std::byte> bytes, Clock::time_point deadline) {
  if (group_.position() > 1 || group_.size() == 1) {
    return {};
  }
  while (!bytes.empty()) {
    const std::span<std::byte> part = bytes.first(std::min(bytes.size(), kMostBytesAtOnce));
    const Rank other = group_.members()[is_root() ? 1 : 0];
    Transfer transfer;
    if (is_root()) {
      group_.fabric().send(transfer, other, group_.peer_tag(told_second_++), part);
    } else {
      group_.fabric().receive(transfer, other, group_.peer_tag(told_second_++), part);
    }
    if (Outcome outcome = group_.fabric().wait(transfer, deadline); !outcome.ok()) {
      return outcome;
    }
    bytes = bytes.subspan(part.size());
  }
  return {};
}

StepReport RootUpdate::join() {
  const Clock::time_point deadline = Clock::now() + options_.patience;
  if (const Outcome outcome = group_.broadcast(std::as_writable_bytes(replica_.values()), 0, deadline); !outcome.ok()) {
    return lost_report(outcome);
  }
  TellingVisitor visitor([&](std::span<std::byte> bytes) { return tell_second(bytes, deadline); });
  visit_state(visitor);
  return visitor.outcome().ok() ? StepReport{} : lost_report(visitor.outcome());
}

StepReport RootUpdate::step(BatchStream& batches, const StepRequest& request) {
  const Batch* batch = batches.next();
  if (batch == nullptr) {
    return {.outcome = StepReport::Outcome::end_of_epoch};
  }
  prepared_.reset();
  const Clock::time_point deadline = Clock::now() + options_.patience;
  const std::vector<std::span<float>> lanes = replica_.gradient_memory(batch->size());
  const LossSums sums = compute_or_zero(replica_, *batch, lanes, nullptr);
  for (std::size_t lane = 1; lane < lanes.size(); ++lane) {
    std::ranges::transform(lanes[0], lanes[lane], lanes[0].begin(), std::plus<>());
  }
  if (const Outcome outcome = group_.reduce(lanes[0], 0, deadline); !outcome.ok()) {
    return lost_report(outcome);
  }
  const StepExchange::Own own = {
      *batch, sums, contributions(*batch, lanes), {request.stop, request.regroup}, request.costs};
  return exchange_.finish_step(replica_, own, batches, deadline,
                               [&](const StepExchange::Told& told, WholeUpdate& update) {
                                 return make_update(*batch, told, lanes[0], request.update, deadline, update);
                               });
}

Outcome RootUpdate::make_update(const Batch& batch, const StepExchange::Told& told, std::span<float> gradient,
                                const UpdateOptions& options, Clock::time_point deadline, WholeUpdate& update) {
  if (is_root()) {
    average_observed(replica_.table(), gradient, told.contributions);
  }
  if (Outcome outcome = tell_second(std::as_writable_bytes(gradient), deadline); !outcome.ok()) {
    return outcome;
  }
  const std::array<std::span<const float>, 1> parts = {gradient};
  PreparedUpdate ready;
  if (shard_) {
    ready = prepare_update(replica_, parts, told.sums.rows, options);
  }
  if (options_.commit) {
    if (Outcome outcome = options_.commit(deadline); !outcome.ok()) {
      if (shard_) {
        prepared_.emplace(PreparedStep{batch, told, gradient, ready});
      }
      return outcome;
    }
  }
  if (shard_) {
    update = apply_prepared(*shard_, replica_, batch.epoch, parts, ready);
  }
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

StepReport RootUpdate::finish_prepared(BatchStream& batches) {
  check(prepared_.has_value(), "a step is prepared before it is finished");
  const StepReport report = prepared_->finish(*shard_, replica_, batches);
  prepared_.reset();
  return report;
}

void RootUpdate::visit_state(StateVisitor& visitor) {
  if (shard_) {
    shard_->visit_state(visitor);
  }
}

}  // namespace distbelief
