#include "strategy/gossip.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "base/check.h"
#include "strategy/average_state.h"

namespace distbelief {
namespace {

// Who waits for any of several peers looks again and again: first at once, for what is being written now, then after
// naps that leave the core to others.
constexpr int kLooksWithoutNap = 20;
constexpr std::chrono::microseconds kNap{50};

enum Trouble : std::uint64_t { kNone, kParameters, kLoss };

}  // namespace

struct Gossip::Head {
  LossSums sums;
  std::uint64_t stop = 0;
  std::uint64_t regroup = 0;
  std::uint64_t trouble = kNone;  ///< with any, there is no gradient
  std::uint64_t ids = 0;
};

Gossip::Gossip(Replica& replica, const UpdateRule& rule, Group& group, const Options& options)
    : replica_(replica),
      group_(group),
      options_(options),
      in_step_(options.quorum == group.size() - 1),
      shard_(replica.table(), replica.table().everything(), rule, replica.values()),
      exchange_(group, 0),
      rounds_(group, message_bytes(), options.staleness + 1),
      listener_(rounds_) {
  check(options.quorum >= 0 && options.quorum < group.size(), "a quorum is of the other members");
  check(options.staleness > 0, "members that do not go in step are ahead of each other");
}

std::size_t Gossip::message_bytes() const {
  return sizeof(Head) + static_cast<std::size_t>(options_.group.most_rows) * sizeof(std::uint64_t) +
         replica_.values().size_bytes();
}

StepReport Gossip::join() { return copy_from_first(group_, replica_, *this, options_.group.patience); }

std::string Gossip::apply(std::span<const float> gradient, std::int64_t rows) {
  const std::array<std::span<const float>, 1> parts = {gradient};
  return apply_to_whole(shard_, replica_, epoch_, parts, rows, update_).culprit;
}

void Gossip::compute(const Batch& batch, Wishes wishes, std::span<std::byte> message) {
  Head head;
  head.stop = wishes.stop ? 1 : 0;
  head.regroup = wishes.regroup ? 1 : 0;
  head.ids = batch.ids.size();
  check(batch.size() <= options_.group.most_rows, "a member takes at most its share of a batch");
  std::memcpy(message.data() + sizeof head, batch.ids.data(), batch.ids.size() * sizeof(std::uint64_t));
  const bool sound = culprit_.empty();
  // Other parts of the network need this one's values, whatever became of its parameters.
  if ((sound || replica_.options().links != nullptr) && batch.size() > 0) {
    head.sums = replica_.compute_gradient(batch, &listener_);
    if (!std::isfinite(head.sums.loss)) {
      const std::string found = replica_.find_nonfinite(batch);
      culprit_ = !sound ? culprit_ : found.empty() ? "the loss" : found;
      head.trouble = kLoss;
    } else if (sound) {
      auto* const floats = reinterpret_cast<float*>(message.data() + message.size() - replica_.values().size_bytes());
      const std::span<float> gradient(floats, replica_.values().size());
      const std::span<const std::span<const float>> lanes = replica_.gradients();
      std::ranges::copy(lanes[0], gradient.begin());
      for (const std::span<const float> lane : lanes.subspan(1)) {
        std::ranges::transform(gradient, lane, gradient.begin(), std::plus<>());
      }
      average_observed(replica_.table(), gradient, std::ssize(lanes));
      culprit_ = apply(gradient, head.sums.rows);
    }
  }
  if (!culprit_.empty()) {
    head.sums = {};
    head.trouble = std::max<std::uint64_t>(head.trouble, kParameters);
    trouble_round_ = std::min(trouble_round_, rounds_.sent() + 1);
    loss_diverged_ = loss_diverged_ || head.trouble == kLoss;
  }
  if (wishes.stop) {
    stop_round_ = std::min(stop_round_, rounds_.sent() + 1);
  }
  if (wishes.regroup) {
    regroup_rounds_.insert(rounds_.sent() + 1);
  }
  unreported_ += head.sums;
  unsettled_.insert(unsettled_.end(), batch.ids.begin(), batch.ids.end());
  std::memcpy(message.data(), &head, sizeof head);
}

void Gossip::take(int position, std::span<const std::byte> message, BatchStream& batches) {
  Head head;
  std::memcpy(&head, message.data(), sizeof head);
  const auto* const first = reinterpret_cast<const std::uint64_t*>(message.data() + sizeof head);
  const std::span ids(first, std::min<std::uint64_t>(head.ids, static_cast<std::uint64_t>(options_.group.most_rows)));
  batches.leased_by_others(ids);
  unsettled_.insert(unsettled_.end(), ids.begin(), ids.end());
  unreported_ += head.sums;
  const std::uint64_t round = rounds_.read(position) + 1;
  if (head.stop != 0) {
    stop_round_ = std::min(stop_round_, round);
  }
  if (head.regroup != 0) {
    regroup_rounds_.insert(round);
  }
  if (head.trouble != kNone) {
    trouble_round_ = std::min(trouble_round_, round);
    loss_diverged_ = loss_diverged_ || head.trouble == kLoss;
  } else if (culprit_.empty() && head.sums.rows > 0) {
    const auto* const floats =
        reinterpret_cast<const float*>(message.data() + message.size() - replica_.values().size_bytes());
    culprit_ = apply({floats, replica_.values().size()}, head.sums.rows);
  }
  rounds_.release(position);
}

void Gossip::take_all_that_came(BatchStream& batches) {
  for (int position = 0; position < group_.size(); ++position) {
    if (position == group_.position()) {
      continue;
    }
    while (const auto message = rounds_.arrived(position)) {
      take(position, *message, batches);
    }
  }
}

int Gossip::slowest() const {
  int slowest = -1;
  for (int position = 0; position < group_.size(); ++position) {
    if (position != group_.position() && (slowest < 0 || rounds_.read(position) < rounds_.read(slowest))) {
      slowest = position;
    }
  }
  return slowest;
}

template <typename Done>
Outcome Gossip::listen_until(const Done& done, BatchStream& batches, Clock::time_point deadline) {
  for (int look = 0;; ++look) {
    if (in_step_) {
      rounds_.progress();  // what is ahead of this round waits for it, so that the order is always the same
    } else {
      take_all_that_came(batches);
    }
    if (done() || !rounds_.outcome().ok()) {
      return rounds_.outcome();
    }
    if (Clock::now() >= deadline) {
      const Rank rank = group_.members()[static_cast<std::size_t>(slowest())];
      return {Outcome::Kind::timed_out, rank, "did not answer in time"};
    }
    if (look < kLooksWithoutNap) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
}

bool Gossip::enough_came() const {
  int came = 0;
  for (int position = 0; position < group_.size(); ++position) {
    if (position == group_.position()) {
      continue;
    }
    const std::uint64_t read = rounds_.read(position);
    if (read + static_cast<std::uint64_t>(options_.staleness) < rounds_.sent()) {
      return false;
    }
    came += read >= rounds_.sent() ? 1 : 0;
  }
  return came >= options_.quorum;
}

Outcome Gossip::wait_for_others(BatchStream& batches, Clock::time_point deadline) {
  if (!in_step_) {
    return listen_until([&] { return enough_came(); }, batches, deadline);
  }
  for (int position = 0; position < group_.size(); ++position) {
    if (position != group_.position()) {
      if (const auto message = rounds_.wait_for(position, deadline)) {
        take(position, *message, batches);
      }
    }
  }
  return rounds_.outcome();
}

Outcome Gossip::deliver_all(BatchStream& batches, Clock::time_point deadline) {
  const auto all_came = [&] {
    return rounds_.all_delivered() && (group_.size() == 1 || rounds_.read(slowest()) == rounds_.sent());
  };
  return listen_until(all_came, batches, deadline);
}

StepReport Gossip::step(BatchStream& batches, const StepRequest& request) {
  const Batch* batch = batches.next();
  if (batch == nullptr) {
    return {.outcome = StepReport::Outcome::end_of_epoch};
  }
  const Clock::time_point deadline = Clock::now() + options_.group.patience;
  update_ = request.update;
  update_.rate *= options_.rate;
  epoch_ = batch->epoch;
  std::optional<std::span<std::byte>> message;
  const auto has_room = [&] { return (message = rounds_.outgoing()).has_value(); };
  if (const Outcome outcome = listen_until(has_room, batches, deadline); !outcome.ok()) {
    return lost_report(outcome);
  }
  compute(*batch, {request.stop, request.regroup}, *message);
  rounds_.send();
  if (const Outcome outcome = wait_for_others(batches, deadline); !outcome.ok()) {
    return lost_report(outcome);
  }
  // Of rounds up to here every member has read the messages of all.
  const std::uint64_t behind = in_step_ ? 0 : static_cast<std::uint64_t>(options_.staleness);
  const std::uint64_t known = std::max(settled_, rounds_.sent() - std::min(rounds_.sent(), behind));
  if (trouble_round_ <= known) {
    const Outcome outcome = deliver_all(batches, deadline);
    return outcome.ok() ? diverged(batches, deadline) : lost_report(outcome);
  }
  StepReport report = {.sums = std::exchange(unreported_, {}), .stop = stop_round_ <= known};
  const auto unheard = regroup_rounds_.upper_bound(known);  // by some member, perhaps
  report.regroup = unheard != regroup_rounds_.begin();
  regroup_rounds_.erase(regroup_rounds_.begin(), unheard);
  return report;
}

StepReport Gossip::settle(BatchStream& batches) {
  if (holds_state()) {
    return {};
  }
  const Clock::time_point deadline = Clock::now() + options_.group.patience;
  Outcome outcome = deliver_all(batches, deadline);
  if (outcome.ok()) {
    // The last gradients may have brought trouble that no message has told of.
    std::string culprit = culprit_;
    outcome = exchange_.tell_culprit(culprit, deadline);
    if (outcome.ok() && !culprit.empty()) {
      return diverged(batches, deadline);
    }
  }
  if (outcome.ok()) {
    outcome = average_state(group_, replica_.values(), shard_, deadline);
  }
  if (!outcome.ok()) {
    return lost_report(outcome);
  }
  settled_ = rounds_.sent();
  batches.applied(unsettled_);
  unsettled_.clear();
  return {.sums = std::exchange(unreported_, {})};
}

StepReport Gossip::diverged(BatchStream& batches, Clock::time_point deadline) {
  StepReport report = {.outcome = StepReport::Outcome::diverged, .sums = std::exchange(unreported_, {})};
  report.culprit = culprit_;
  if (const Outcome outcome = exchange_.tell_culprit(report.culprit, deadline); !outcome.ok()) {
    return lost_report(outcome);
  }
  if (loss_diverged_) {
    report.sums.loss = std::numeric_limits<double>::quiet_NaN();
  }
  batches.dropped(unsettled_);
  unsettled_.clear();
  return report;
}

void Gossip::visit_state(StateVisitor& visitor) { shard_.visit_state(visitor); }

}  // namespace distbelief
