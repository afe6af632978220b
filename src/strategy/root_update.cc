#include "strategy/root_update.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

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
                                 const Making making = {lanes[0], told.sums.rows, batch->epoch, request.update};
                                 if (is_root()) {
                                   average_observed(replica_.table(), lanes[0], told.contributions);
                                   update = apply(making);
                                 }
                                 return share(making, update, deadline);
                               });
}

WholeUpdate RootUpdate::apply(const Making& making) {
  const std::array<std::span<const float>, 1> parts = {making.gradient};
  return apply_to_whole(*shard_, replica_, making.epoch, parts, making.rows, making.options);
}

Outcome RootUpdate::share(const Making& making, WholeUpdate& update, Clock::time_point deadline) {
  struct Verdict {
    bool applied;
    std::array<char, kMostCulpritBytes> culprit;
  } verdict = {update.applied, {}};
  update.culprit.copy(verdict.culprit.data(), kMostCulpritBytes - 1);
  Outcome outcome = group_.broadcast(std::as_writable_bytes(std::span(&verdict, 1)), 0, deadline);
  if (outcome.ok() && verdict.applied) {
    outcome = tell_second(std::as_writable_bytes(making.gradient), deadline);
    if (outcome.ok() && !is_root() && shard_) {
      update = apply(making);
    }
  }
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
