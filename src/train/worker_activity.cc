#include "train/worker_activity.h"

#include <fmt/format.h>

namespace distbelief {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;  // each number stands for itself

}  // namespace

void WorkerActivity::begin(Kind kind, std::int64_t steps) {
  steps_.store(steps, kRelaxed);
  kind_.store(kind, kRelaxed);
}

void WorkerActivity::stepped(const ProgressState& state) {
  epoch_.store(state.epoch, kRelaxed);
  samples_per_second_.store(state.samples_per_second, kRelaxed);
  loss_.store(state.loss, kRelaxed);
}

void WorkerActivity::spent(const StepTimes& times) {
  const std::scoped_lock lock(mutex_);
  times_.steps += times.steps;
  times_.computed += times.computed;
  times_.loaded += times.loaded;
  times_.linked += times.linked;
}

Progress WorkerActivity::progress() const {
  Progress progress;
  {
    const std::scoped_lock lock(mutex_);
    progress.times = times_;
  }
  progress.step = steps_.load(kRelaxed);
  progress.epoch = epoch_.load(kRelaxed);
  progress.samples_per_second = samples_per_second_.load(kRelaxed);
  progress.loss = loss_.load(kRelaxed);
  progress.share = share_.load(kRelaxed);
  const std::int64_t next = progress.step + 1;
  switch (kind_.load(kRelaxed)) {
    case Kind::starting:
      progress.operation = "starting";
      break;
    case Kind::meeting:
      progress.operation = "meeting the others";
      progress.waits_for_others = true;
      break;
    case Kind::loading:
      progress.operation = fmt::format("loading data for step {}", next);
      break;
    case Kind::stepping:
      progress.waits_for_others = !compute_.computing();
      progress.operation =
          fmt::format("{} step {}", progress.waits_for_others ? "waiting for others in" : "computing", next);
      break;
    case Kind::evaluating:
      progress.operation = fmt::format("evaluating after step {}", progress.step);
      break;
    case Kind::gathering:
      progress.operation = fmt::format("waiting for others' evaluation after step {}", progress.step);
      progress.waits_for_others = true;
      break;
    case Kind::writing_checkpoint:
      progress.operation = fmt::format("writing the checkpoint of step {}", progress.step);
      break;
    case Kind::serving:
      progress.operation = "serving";
      break;
    case Kind::ending:
      progress.operation = "ending";
      break;
  }
  return progress;
}

}  // namespace distbelief
