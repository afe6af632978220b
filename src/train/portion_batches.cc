#include "train/portion_batches.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "data/loader.h"

namespace distbelief {
namespace {

constexpr int kReadAhead = 8;  // batches

std::size_t bytes_of(const Batch& batch) {
  return batch.ids.size() * sizeof(std::uint64_t) + batch.dense.size() * sizeof(float) +
         (batch.indices.size() + batch.classes.size()) * sizeof(std::int32_t) + batch.targets.size() * sizeof(float) +
         batch.sparse.offsets.size() * sizeof(std::int64_t) +
         batch.sparse.columns.size() * (sizeof(std::int32_t) + sizeof(float));
}

}  // namespace

PortionBatches::PortionBatches(const Dataset& dataset, const Sampler& sampler, const Options& options)
    : dataset_(dataset), sampler_(sampler), options_(options) {
  if (const int threads = options.loader_threads.value_or(usual_loader_threads(dataset)); threads > 0) {
    ahead_.emplace(dataset_, sampler_, threads, kReadAhead);
  }
}

void PortionBatches::want(const SampleRun& samples) {
  for (std::int64_t done = 0; done < samples.count; done += options_.batch) {
    const std::int64_t size = std::min(options_.batch, samples.count - done);
    wanted_.push_back({.place = {.epoch = static_cast<std::uint64_t>(samples.epoch),
                                 .position = static_cast<std::uint64_t>(samples.first + done),
                                 .size = static_cast<std::uint64_t>(size)},
                       .last = done + size == samples.count});
  }
  plan();
}

void PortionBatches::plan() {
  if (!ahead_) {
    return;
  }
  for (Wanted& wanted : wanted_) {
    if (wanted.planned || kept_.contains(wanted.place.position)) {
      continue;
    }
    if (!ahead_->has_room()) {
      return;
    }
    ahead_->plan(wanted.place);
    wanted.planned = true;
  }
}

const Batch* PortionBatches::next() {
  if (std::exchange(ended_, false) || wanted_.empty()) {
    return nullptr;
  }
  const Wanted wanted = wanted_.front();
  wanted_.pop_front();
  ended_ = wanted.last;
  const auto start = Clock::now();
  const auto kept = kept_.find(wanted.place.position);
  if (wanted.planned) {
    ahead_->take(batch_);
  } else if (kept != kept_.end() && kept->second.ids.size() == wanted.place.size) {
    kept_samples_ += kept->second.size();
    return &kept->second;
  } else {
    read_batch(dataset_, sampler_, wanted.place, ids_, batch_);
  }
  wait_seconds_ += seconds_since(start);
  plan();
  keep(wanted.place, batch_);
  return &batch_;
}

void PortionBatches::keep(const BatchPlace& place, const Batch& batch) {
  const std::size_t bytes = bytes_of(batch);
  if (!dataset_.cheap() && kept_bytes_ + bytes <= options_.most_kept_bytes &&
      kept_.try_emplace(place.position, batch).second) {
    kept_bytes_ += bytes;
  }
}

void PortionBatches::drop() {
  wanted_.clear();
  ended_ = false;
  if (ahead_) {
    ahead_->drop();
  }
}

}  // namespace distbelief
