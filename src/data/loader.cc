#include "data/loader.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"

namespace distbelief {

int usual_loader_threads(const Dataset& dataset) { return dataset.cheap() ? 0 : 2; }

Loader::Loader(const Dataset& dataset, const Sampler& sampler, const LoaderOptions& options)
    : dataset_(dataset), sampler_(sampler), options_(options), consumer_{options.epoch, options.position} {
  check(sampler.samples() == dataset.size(), "the sampler orders this data set");
  check(options.parts > 0 && options.part >= 0 && options.part < options.parts, "the part is one of the parts");
  if (options.batch <= 0) {
    throw InputError(fmt::format("batch: must be at least 1, not {}", options.batch));
  }
  if (options.position > dataset.size()) {
    throw InputError(fmt::format("cannot start at sample {} of an epoch of {}", options.position, dataset.size()));
  }
  if (options.drop_last && static_cast<std::uint64_t>(options.batch) > dataset.size()) {
    throw InputError(
        fmt::format("batch: {} is more than the {} samples of the data set, and incomplete batches are left out",
                    options.batch, dataset.size()));
  }
  if (!options.shares.empty()) {
    check(std::ssize(options.shares) == options.parts, "each part has a share");
    before_.resize(options.shares.size() + 1);
    std::partial_sum(options.shares.begin(), options.shares.end(), before_.begin() + 1, std::plus<std::uint64_t>());
    check(before_.back() == static_cast<std::uint64_t>(options.batch), "shares are of a batch");
  }
  planned_ = consumer_;
  if (const int threads = options.threads.value_or(usual_loader_threads(dataset)); threads > 0) {
    ahead_.emplace(dataset_, sampler_, threads, std::max(options.prefetch, 1));
    plan();
  }
}

std::uint64_t Loader::batch_size(const Cursor& at) const {
  const std::uint64_t left = dataset_.size() - at.position;
  const std::uint64_t batch = static_cast<std::uint64_t>(options_.batch);
  return options_.drop_last && left < batch ? 0 : std::min(left, batch);
}

void Loader::advance(Cursor& at) const {
  const std::uint64_t size = batch_size(at);
  at = size > 0 ? Cursor{at.epoch, at.position + size} : Cursor{at.epoch + 1, sampler_.done(at.epoch + 1)};
}

BatchPlace Loader::share(const Cursor& at) const {
  const std::uint64_t size = batch_size(at);
  const std::uint64_t parts = static_cast<std::uint64_t>(options_.parts);
  const std::uint64_t part = static_cast<std::uint64_t>(options_.part);
  const auto before = [&](std::uint64_t which) {
    return before_.empty() ? samples_before_part(size, which, parts) : size * before_[which] / before_.back();
  };
  const std::uint64_t begin = before(part);
  return {.epoch = at.epoch, .position = at.position + begin, .size = before(part + 1) - begin};
}

void Loader::plan() {
  while (dataset_.size() > 0 && planned_.epoch < options_.end_epoch && ahead_->has_room()) {
    if (batch_size(planned_) > 0) {
      ahead_->plan(share(planned_));
    }
    advance(planned_);
  }
}

void Loader::hand_out(const Batch& batch) {
  leased_ += static_cast<std::uint64_t>(batch.size());
  advance(consumer_);
}

const Batch* Loader::next() {
  if (consumer_.epoch >= options_.end_epoch) {
    return nullptr;
  }
  if (batch_size(consumer_) == 0) {
    advance(consumer_);
    return nullptr;
  }
  const Clock::time_point start = Clock::now();
  if (ahead_) {
    ahead_->take(batch_);
    plan();
  } else {
    read_batch(dataset_, sampler_, share(consumer_), ids_, batch_);
  }
  wait_seconds_ += seconds_since(start);
  hand_out(batch_);
  return &batch_;
}

bool Loader::take(Batch& batches, std::int64_t most) {
  check(options_.parts == 1 && most > 0, "whole batches, at least one");
  const Clock::time_point start = Clock::now();
  std::unique_lock lock(mutex_);
  const auto over = [&] { return consumer_.epoch >= options_.end_epoch || batch_size(consumer_) == 0; };
  if (over()) {
    return false;
  }
  if (ahead_) {
    ahead_->take(batches);  // others who want batches wait with it, for those that come after
    plan();
    hand_out(batches);
  } else {
    BatchPlace place = {.epoch = consumer_.epoch, .position = consumer_.position};
    for (std::int64_t i = 0; i < most && !over(); ++i) {
      advance(consumer_);
    }
    place.size = consumer_.position - place.position;
    leased_ += place.size;
    lock.unlock();
    std::vector<std::uint64_t> ids;
    read_batch(dataset_, sampler_, place, ids, batches);
    lock.lock();
  }
  wait_seconds_ += seconds_since(start);
  return true;
}

}  // namespace distbelief
