#include "strategy/step_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace distbelief {
namespace {

/// Places in a member's slot; the samples' ids follow.
enum Place : std::size_t {
  kLoss,
  kCorrect,
  kRows,
  kContributions,
  kStop,
  kRegroup,
  kCostRows,
  kComputed,
  kLoaded,
  kTook,
  kHost,
  kIds,
  kFirstId
};

constexpr std::size_t kCulpritBytes = 256;

/// Sends on the first member, overwrites on the others.
class SharingVisitor : public StateVisitor {
 public:
  SharingVisitor(Group& group, Clock::time_point deadline) : group_(group), deadline_(deadline) {}
  void floats(std::string_view /*name*/, std::span<float> values) override { share(std::as_writable_bytes(values)); }
  void number(std::string_view /*name*/, std::uint64_t& value) override {
    share(std::as_writable_bytes(std::span(&value, 1)));
  }
  void numbers(std::string_view /*name*/, std::vector<std::uint64_t>& values) override {
    std::uint64_t count = values.size();
    share(std::as_writable_bytes(std::span(&count, 1)));
    values.resize(count);
    share(std::as_writable_bytes(std::span(values)));
  }
  const Outcome& outcome() const { return outcome_; }

 private:
  void share(std::span<std::byte> bytes) {
    if (outcome_.ok()) {
      outcome_ = group_.broadcast(bytes, 0, deadline_);
    }
  }

  Group& group_;
  const Clock::time_point deadline_;
  Outcome outcome_;
};

/// Tells the audit what became of everybody's samples.
void settle_samples(BatchStream& batches, const Batch& batch, const StepExchange::Told& told, bool applied) {
  if (applied) {
    batches.applied(batch.ids);
    batches.applied(told.others);
  } else {
    batches.dropped(batch.ids);
    batches.dropped(told.others);
  }
}

StepReport report_of_update(const Batch& batch, const StepExchange::Told& told, const WholeUpdate& made,
                            BatchStream& batches) {
  settle_samples(batches, batch, told, made.applied);
  StepReport report = {
      .sums = told.sums, .stop = told.wishes.stop, .regroup = told.wishes.regroup, .costs = told.costs};
  if (!made.culprit.empty()) {
    report.outcome = StepReport::Outcome::diverged;
    report.culprit = made.culprit;
  }
  return report;
}

}  // namespace

StepExchange::StepExchange(Group& group, std::int64_t most_rows) : group_(group) { expect_rows(most_rows); }

void StepExchange::expect_rows(std::int64_t most_rows) {
  slot_ = kFirstId + static_cast<std::size_t>(most_rows);
  numbers_.assign(slot_ * static_cast<std::size_t>(group_.size()), 0);
}

Outcome StepExchange::tell(const LossSums& sums, std::int64_t contributions, std::span<const std::uint64_t> ids,
                           Wishes wishes, Clock::time_point deadline, Told& told, const StepCosts& costs) {
  check(kFirstId + ids.size() <= slot_, "a member takes at most its share of a batch");
  std::uint64_t* own = numbers_.data() + slot_ * static_cast<std::size_t>(group_.position());
  own[kLoss] = std::bit_cast<std::uint64_t>(sums.loss);
  own[kCorrect] = static_cast<std::uint64_t>(sums.correct);
  own[kRows] = static_cast<std::uint64_t>(sums.rows);
  own[kContributions] = static_cast<std::uint64_t>(contributions);
  own[kStop] = wishes.stop ? 1 : 0;
  own[kRegroup] = wishes.regroup ? 1 : 0;
  own[kCostRows] = costs.rows;
  own[kComputed] = costs.computed;
  own[kLoaded] = costs.loaded;
  own[kTook] = costs.took;
  own[kHost] = costs.host;
  own[kIds] = ids.size();
  std::ranges::copy(ids, own + kFirstId);
  if (Outcome outcome = group_.all_gather(numbers_, deadline); !outcome.ok()) {
    return outcome;
  }
  told = {};
  for (int position = 0; position < group_.size(); ++position) {
    const std::uint64_t* slot = numbers_.data() + slot_ * static_cast<std::size_t>(position);
    told.sums += {std::bit_cast<double>(slot[kLoss]), static_cast<std::int64_t>(slot[kCorrect]),
                  static_cast<std::int64_t>(slot[kRows])};
    told.contributions += static_cast<std::int64_t>(slot[kContributions]);
    told.wishes.stop = told.wishes.stop || slot[kStop] != 0;
    told.wishes.regroup = told.wishes.regroup || slot[kRegroup] != 0;
    told.costs.push_back({slot[kCostRows], slot[kComputed], slot[kLoaded], slot[kTook], slot[kHost]});
    if (position != group_.position()) {
      const auto count = static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(slot[kIds], slot_ - kFirstId));
      told.others.insert(told.others.end(), slot + kFirstId, slot + kFirstId + count);
    }
  }
  return {};
}

Outcome StepExchange::tell_culprit(std::string& culprit, Clock::time_point deadline) {
  constexpr std::size_t kNumbers = kCulpritBytes / sizeof(std::uint64_t);
  std::vector<std::uint64_t> texts(kNumbers * static_cast<std::size_t>(group_.size()));
  const auto text_of = [&](int position) {
    return reinterpret_cast<char*>(texts.data() + kNumbers * static_cast<std::size_t>(position));
  };
  std::memcpy(text_of(group_.position()), culprit.data(), std::min(culprit.size(), kCulpritBytes - 1));
  if (Outcome outcome = group_.all_gather(texts, deadline); !outcome.ok()) {
    return outcome;
  }
  culprit.clear();
  for (int position = 0; position < group_.size() && culprit.empty(); ++position) {
    culprit.assign(text_of(position), strnlen(text_of(position), kCulpritBytes));
  }
  return {};
}

StepReport StepExchange::diverged(Replica& replica, const Own& own, const Told& told, BatchStream& batches,
                                  Clock::time_point deadline) {
  StepReport report = {.outcome = StepReport::Outcome::diverged, .sums = told.sums, .stop = told.wishes.stop};
  if (!std::isfinite(own.sums.loss)) {
    report.culprit = replica.find_nonfinite(own.batch);
  }
  if (const Outcome outcome = tell_culprit(report.culprit, deadline); !outcome.ok()) {
    report.culprit = lost_text(outcome);
  }
  settle_samples(batches, own.batch, told, false);
  return report;
}

StepReport StepExchange::finish_step(Replica& replica, const Own& own, BatchStream& batches, Clock::time_point deadline,
                                     const Update& update) {
  Told told;
  if (const Outcome outcome = tell(own.sums, own.contributions, own.batch.ids, own.wishes, deadline, told, own.costs);
      !outcome.ok()) {
    return lost_report(outcome);
  }
  batches.leased_by_others(told.others);
  if (!std::isfinite(told.sums.loss)) {
    return diverged(replica, own, told, batches, deadline);
  }
  WholeUpdate made = {.applied = false};
  if (const Outcome outcome = update(told, made); !outcome.ok()) {
    StepReport report = lost_report(outcome);
    report.sums = told.sums;
    report.completed = made.applied;
    if (made.applied) {
      settle_samples(batches, own.batch, told, true);
    }
    return report;
  }
  return report_of_update(own.batch, told, made, batches);
}

StepReport PreparedStep::finish(ParameterShard& shard, const Replica& replica, BatchStream& batches) const {
  const std::array<std::span<const float>, 1> parts = {gradient};
  return report_of_update(batch, told, apply_prepared(shard, replica, batch.epoch, parts, update), batches);
}

LossSums compute_or_zero(Replica& replica, const Batch& batch, std::span<const std::span<float>> lanes,
                         GradientListener* listener) {
  if (batch.size() > 0) {
    return replica.compute_gradient(batch, listener);
  }
  std::ranges::fill(lanes[0], 0.0F);
  return {};
}

std::int64_t contributions(const Batch& batch, std::span<const std::span<float>> lanes) {
  return batch.size() > 0 ? static_cast<std::int64_t>(lanes.size()) : 0;
}

void average_observed(const ParameterTable& table, std::span<float> sum, std::int64_t contributions) {
  for (float& observed : sum.subspan(static_cast<std::size_t>(table.optimized_size()))) {
    observed /= static_cast<float>(contributions);
  }
}

StepReport lost_report(const Outcome& outcome) {
  return {.outcome = StepReport::Outcome::group_lost, .culprit = lost_text(outcome)};
}

std::string lost_text(const Outcome& outcome) { return fmt::format("rank {} {}", outcome.peer.value, outcome.reason); }

StepReport copy_from_first(Group& group, Replica& replica, Strategy& strategy, Clock::duration patience) {
  SharingVisitor visitor(group, Clock::now() + patience);
  visitor.floats("values", replica.values());
  strategy.visit_state(visitor);
  return visitor.outcome().ok() ? StepReport{} : lost_report(visitor.outcome());
}

}  // namespace distbelief
