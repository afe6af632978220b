#include "strategy/hogwild_lanes.h"

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
struct alignas(64) HogwildLanes::Lane {
  Lane(const Replica& shared, const ReplicaOptions& options) : replica(shared.graph(), shared.table(), options) {}

  Replica replica;
  Batch samples;
  const Batch* given = nullptr;  ///< to begin a round with
  std::int64_t portion = 1;      ///< batches that are taken at once
  StepReport report;             ///< of this round
  std::exception_ptr error;
};

/// What the threads share in one call of run(), besides the shard.
struct HogwildLanes::Round {
  BatchStream& batches;
  const StepRequest& request;
  const Clock::time_point deadline;
  const Listener& listener;
  std::atomic<bool> over = false;  ///< something went wrong

  alignas(64) std::mutex mutex = {};
  std::int64_t taken = 1;     ///< guarded by mutex, as the next: updates whose batches were taken; the 0-th was given
  std::int64_t reserved = 1;  ///< and those that somebody is about to take

  /// How many of the updates that are left the caller may take batches for, at most so many.
  std::int64_t reserve(std::int64_t wanted) {
    const std::scoped_lock lock(mutex);
    const std::int64_t most = std::min(wanted, request.most_updates - reserved);
    reserved += std::max<std::int64_t>(most, 0);
    return most;
  }
  /// Of what was reserved only so much was taken: the rest is for whoever comes next. The number of the first update.
  std::int64_t take(std::int64_t reserved_before, std::int64_t count) {
    const std::scoped_lock lock(mutex);
    reserved -= reserved_before - count;
    return std::exchange(taken, taken + count);
  }
};

HogwildLanes::HogwildLanes(Replica& replica, const UpdateRule& rule, const Options& options)
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

HogwildLanes::~HogwildLanes() = default;

StepReport HogwildLanes::run(BatchStream& batches, const Batch& first, const StepRequest& request,
                             Clock::time_point deadline, const Listener& listener) {
  lanes_[0]->given = &first;
  if (!began_) {
    for (const auto& lane : lanes_) {
      shard_.read_all(lane->replica.values());
    }
    began_ = true;
  }
  Round round = {.batches = batches, .request = request, .deadline = deadline, .listener = listener};
  {
    const ComputeWatch::Span computes(replica_.options().watch);
    parallel_lanes(options_.threads, [&](int i) {
      Lane& lane = *lanes_[static_cast<std::size_t>(i)];
      try {
        work(lane, round);
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

void HogwildLanes::work(Lane& lane, Round& round) {
  lane.report = {.updates = 0};
  {
    const auto held = lock();
    shard_.read_dense(lane.replica.values());
  }
  for (;;) {
    const Clock::time_point start = Clock::now();
    std::int64_t number = 0;
    const Batch* samples = std::exchange(lane.given, nullptr);
    if (samples == nullptr) {
      if (round.over || start >= round.deadline) {
        return;
      }
      // Of a short round nobody takes so much that the others have nothing to do.
      const std::int64_t fair = round.request.most_updates / (4 * options_.threads);
      const std::int64_t wanted = std::min(lane.portion, std::max<std::int64_t>(fair, 1));
      const std::int64_t most = round.reserve(wanted);
      if (most <= 0 || !round.batches.take(lane.samples, most)) {
        return;
      }
      samples = &lane.samples;
      const std::int64_t came = (samples->size() + options_.batch - 1) / options_.batch;
      number = round.take(most, came);  // a stream may give fewer than it was asked for
      lane.portion = std::min(lane.portion, came);
    }
    if (!make_updates(lane, round, *samples, number)) {
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

bool HogwildLanes::make_updates(Lane& lane, Round& round, const Batch& samples, std::int64_t first_number) {
  const std::span<const std::uint64_t> ids = samples.ids;
  std::int64_t done = 0;
  bool goes_on = true;
  while (goes_on && done < samples.size()) {
    UpdateOptions options = round.request.update;
    if (round.request.rate_of) {
      options.rate = round.request.rate_of(first_number + done / options_.batch);
    }
    const std::int64_t rows = std::min(options_.batch, samples.size() - done);
    bool applied = false;
    goes_on = update(lane, samples, done, rows, options, round.listener, applied);
    if (!applied) {
      round.batches.dropped(ids.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(rows)));
      break;
    }
    done += rows;
  }
  round.batches.applied(ids.first(static_cast<std::size_t>(done)));
  return goes_on;
}

bool HogwildLanes::update(Lane& lane, const Batch& samples, std::int64_t first, std::int64_t rows,
                          const UpdateOptions& options, const Listener& listener, bool& applied) {
  Replica& replica = lane.replica;
  const std::span<const TouchedRows> touched = replica.prepare(samples, first, rows);
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
  const SparseGradient gradient = {replica.gradients()[0], touched};
  UpdateReport update;
  {
    const auto held = lock();
    update = shard_.apply(gradient, 1.0F / static_cast<float>(rows), options, replica.values());
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
  if (listener) {
    const double length = update.gradient_norm.value_or(0);
    const bool clipped = options.clip_norm > 0 && length > options.clip_norm;
    listener(gradient, clipped ? static_cast<float>(options.clip_norm / length) : 1.0F, sums);
  }
  lane.report.sums += sums;
  return true;
}

std::unique_lock<std::mutex> HogwildLanes::lock() {
  return options_.locked ? std::unique_lock(mutex_) : std::unique_lock<std::mutex>();
}

}  // namespace distbelief
