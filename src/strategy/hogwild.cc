#include "strategy/hogwild.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/parallel.h"

namespace distbelief {
namespace {

constexpr std::int64_t kMostInPortion = 1024;  // batches

}  // namespace

/// One thread's; nobody else looks at it while a round runs.
struct alignas(64) Hogwild::Lane {
  Lane(const Replica& shared, const ReplicaOptions& options) : replica(shared.graph(), shared.table(), options) {}

  Replica replica;
  Batch samples;
  bool has_samples = false;
  std::int64_t portion = 1;  ///< batches that are taken at once
  StepReport report;         ///< of this round
  std::exception_ptr error;
};

/// What the threads share in one call of step(), besides the shard.
struct Hogwild::Round {
  BatchStream& batches;
  const StepRequest& request;
  const Clock::time_point deadline;
  alignas(64) std::atomic<std::int64_t> next_update = 1;  ///< the 0-th has its batch already
  std::atomic<bool> over = false;                         ///< something went wrong
};

Hogwild::Hogwild(Replica& replica, const UpdateRule& rule, const Options& options)
    : replica_(replica), options_(options), shard_(replica.table(), rule, replica.values()) {
  check(options.threads > 0, "Hogwild! has a thread");
  check(LockFreeShard::bears_races(rule), "the update rule bears races");
  const ReplicaOptions lane = {.threads = 1,
                               .mode = ThreadMode::kernels,
                               .seed = replica.options().seed,
                               .gradient_rows = GradientRows::touched};
  for (int i = 0; i < options.threads; ++i) {
    lanes_.push_back(std::make_unique<Lane>(replica, lane));
  }
}

Hogwild::~Hogwild() = default;

StepReport Hogwild::step(BatchStream& batches, const StepRequest& request) {
  if (!batches.take(lanes_[0]->samples, 1)) {
    check(batches.next() == nullptr, "the epoch has ended");
    return {.outcome = StepReport::Outcome::end_of_epoch};
  }
  lanes_[0]->has_samples = true;
  if (!began_) {
    for (const auto& lane : lanes_) {
      shard_.read_all(lane->replica.values());
    }
    began_ = true;
  }
  Round round = {.batches = batches, .request = request, .deadline = Clock::now() + kLongestRound};
  {
    const ComputeWatch::Span computes(replica_.options().watch);
    parallel_lanes(options_.threads, [&](int i) {
      Lane& lane = *lanes_[static_cast<std::size_t>(i)];
      try {
        run(lane, round);
      } catch (...) {
        lane.error = std::current_exception();
        round.over = true;
      }
    });
  }
  StepReport report = {.updates = 0, .stop = request.stop};
  for (const auto& lane : lanes_) {
    if (lane->error) {
      std::rethrow_exception(std::exchange(lane->error, nullptr));
    }
    report.updates += lane->report.updates;
    report.sums += lane->report.sums;
  }
  for (const auto& lane : lanes_) {
    if (lane->report.outcome == StepReport::Outcome::diverged) {
      report.outcome = lane->report.outcome;
      report.culprit = lane->report.culprit;
      report.sums = lane->report.sums;
      break;
    }
  }
  return report;
}

void Hogwild::run(Lane& lane, Round& round) {
  lane.report = {.updates = 0};
  {
    const auto held = lock();
    shard_.read_dense(lane.replica.values());
  }
  for (;;) {
    const Clock::time_point start = Clock::now();
    std::int64_t number = 0;
    if (!lane.has_samples) {
      if (round.over || start >= round.deadline) {
        return;
      }
      // Of a short round nobody takes so much that the others have nothing to do.
      const std::int64_t fair = round.request.most_updates / (4 * options_.threads);
      const std::int64_t wanted = std::min(lane.portion, std::max<std::int64_t>(fair, 1));
      number = round.next_update.fetch_add(wanted, std::memory_order_relaxed);
      const std::int64_t most = std::min(wanted, round.request.most_updates - number);
      if (most <= 0 || !round.batches.take(lane.samples, most)) {
        return;
      }
    }
    lane.has_samples = false;
    if (!make_updates(lane, round, number)) {
      round.over = true;
      return;
    }
    const Clock::duration took = Clock::now() - start;
    if (took < kPortionTime / 2) {
      lane.portion = std::min(2 * lane.portion, kMostInPortion);
    } else if (took > kPortionTime) {
      lane.portion = std::max<std::int64_t>(lane.portion / 2, 1);
    }
  }
}

bool Hogwild::make_updates(Lane& lane, Round& round, std::int64_t first_number) {
  const std::span<const std::uint64_t> ids = lane.samples.ids;
  std::int64_t done = 0;
  bool goes_on = true;
  while (goes_on && done < lane.samples.size()) {
    UpdateOptions options = round.request.update;
    if (round.request.rate_of) {
      options.rate = round.request.rate_of(first_number + done / options_.batch);
    }
    const std::int64_t rows = std::min(options_.batch, lane.samples.size() - done);
    bool applied = false;
    goes_on = update(lane, done, rows, options, applied);
    if (!applied) {
      round.batches.dropped(ids.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(rows)));
      break;
    }
    done += rows;
  }
  round.batches.applied(ids.first(static_cast<std::size_t>(done)));
  return goes_on;
}

bool Hogwild::update(Lane& lane, std::int64_t first, std::int64_t rows, const UpdateOptions& options, bool& applied) {
  Replica& replica = lane.replica;
  const std::span<const TouchedRows> touched = replica.prepare(lane.samples, first, rows);
  {
    const auto held = lock();
    shard_.read_rows(touched, replica.values());
  }
  const LossSums sums = replica.compute_prepared();
  const auto diverge = [&](std::string culprit) {
    lane.report.outcome = StepReport::Outcome::diverged;
    lane.report.sums = sums;
    lane.report.culprit = std::move(culprit);
    return false;
  };
  ++lane.report.updates;
  if (!std::isfinite(sums.loss)) {
    return diverge(replica.find_nonfinite_prepared());
  }
  UpdateReport update;
  {
    const auto held = lock();
    update =
        shard_.apply({replica.gradients()[0], touched}, 1.0F / static_cast<float>(rows), options, replica.values());
  }
  if (update.result == ApplyResult::dropped) {
    const std::string name = replica.nonfinite_gradient();
    return diverge(name.empty() ? "the gradient's length" : "the gradient of '" + name + "'");
  }
  applied = true;
  if (!update.finite) {
    shard_.read_rows(touched, replica.values());
    return diverge("parameter '" + replica.nonfinite_parameter() + "'");
  }
  lane.report.sums += sums;
  return true;
}

std::unique_lock<std::mutex> Hogwild::lock() {
  return options_.locked ? std::unique_lock(mutex_) : std::unique_lock<std::mutex>();
}

void Hogwild::visit_state(StateVisitor& visitor) { shard_.visit_state(visitor); }

}  // namespace distbelief
