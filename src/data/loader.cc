#include "data/loader.h"

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"

namespace distbelief {

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
  const int threads = options.threads.value_or(dataset.cheap() ? 0 : 2);
  // One more than the prefetch, for the batch in the consumer's hands, and at least one that each thread can work on.
  slots_.resize(threads > 0 ? static_cast<std::size_t>(std::max({options.prefetch, threads, 1}) + 1) : 1);
  producer_ = consumer_;
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this](const std::stop_token& stop) { run(stop); });
  }
}

Loader::~Loader() {
  for (std::jthread& thread : threads_) {
    thread.request_stop();  // all first, so that they stop side by side
  }
}

std::uint64_t Loader::batch_size(const Cursor& at) const {
  const std::uint64_t left = dataset_.size() - at.position;
  const std::uint64_t batch = static_cast<std::uint64_t>(options_.batch);
  return options_.drop_last && left < batch ? 0 : std::min(left, batch);
}

void Loader::advance(Cursor& at) const {
  const std::uint64_t size = batch_size(at);
  at = size > 0 ? Cursor{at.epoch, at.position + size} : Cursor{at.epoch + 1, 0};
}

void Loader::read(const Cursor& at, std::uint64_t size, std::vector<std::uint64_t>& ids, Batch& batch) const {
  const std::uint64_t parts = static_cast<std::uint64_t>(options_.parts);
  const std::uint64_t part = static_cast<std::uint64_t>(options_.part);
  const std::uint64_t begin = size * part / parts;
  const std::uint64_t end = size * (part + 1) / parts;
  ids.resize(end - begin);
  sampler_.fill(at.epoch, at.position + begin, ids);
  dataset_.read(ids, at.epoch, batch);
}

void Loader::run(const std::stop_token& stop) {
  std::vector<std::uint64_t> ids;
  std::unique_lock lock(mutex_);
  for (;;) {
    const bool go = changed_.wait(lock, stop, [&] { return claimed_ - freed_ < slots_.size(); });
    if (!go || stop.stop_requested()) {
      return;
    }
    while (producer_.epoch < options_.end_epoch && batch_size(producer_) == 0) {
      if (dataset_.size() == 0) {
        return;
      }
      advance(producer_);
    }
    if (producer_.epoch >= options_.end_epoch) {
      return;
    }
    Slot& slot = slots_[claimed_++ % slots_.size()];
    const Cursor at = producer_;
    advance(producer_);
    lock.unlock();
    try {
      read(at, batch_size(at), ids, slot.batch);
    } catch (...) {
      slot.error = std::current_exception();
    }
    lock.lock();
    slot.ready = true;
    changed_.notify_all();
  }
}

const Batch* Loader::hand_out(const Batch& batch) {
  leased_ += static_cast<std::uint64_t>(batch.size());
  advance(consumer_);
  return &batch;
}

void Loader::give_back() {
  if (holding_) {
    slots_[(taken_ - 1) % slots_.size()].ready = false;
    ++freed_;
    holding_ = false;
    changed_.notify_all();
  }
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
  if (threads_.empty()) {
    read(consumer_, batch_size(consumer_), inline_ids_, slots_[0].batch);
    wait_seconds_ += seconds_since(start);
    return hand_out(slots_[0].batch);
  }
  std::unique_lock lock(mutex_);
  give_back();
  Slot& slot = slots_[taken_ % slots_.size()];
  changed_.wait(lock,
                [&] { return slot.ready; });  // no deadline: a reading thread always ends, with a batch or an error
  wait_seconds_ += seconds_since(start);
  if (slot.error) {
    std::rethrow_exception(slot.error);  // the slot stays as it is: who asks again gets the same answer
  }
  ++taken_;
  holding_ = true;
  lock.unlock();
  return hand_out(slot.batch);
}

bool Loader::take(Batch& batches, std::int64_t most) {
  check(options_.parts == 1 && most > 0, "whole batches, at least one");
  const Clock::time_point start = Clock::now();
  std::unique_lock lock(mutex_);
  const auto over = [&] { return consumer_.epoch >= options_.end_epoch || batch_size(consumer_) == 0; };
  if (over()) {
    return false;
  }
  if (threads_.empty()) {
    const Cursor at = consumer_;
    for (std::int64_t i = 0; i < most && !over(); ++i) {
      advance(consumer_);
    }
    const std::uint64_t size = consumer_.position - at.position;
    leased_ += size;
    lock.unlock();
    std::vector<std::uint64_t> ids;
    read(at, size, ids, batches);
    lock.lock();
    wait_seconds_ += seconds_since(start);
    return true;
  }
  give_back();
  const auto slot = [&]() -> Slot& { return slots_[taken_ % slots_.size()]; };  // others take while this one waits
  changed_.wait(lock, [&] { return over() || slot().ready; });                  // no deadline: as in next()
  if (over()) {
    return false;
  }
  wait_seconds_ += seconds_since(start);
  if (slot().error) {
    std::rethrow_exception(slot().error);
  }
  std::swap(batches, slot().batch);
  ++taken_;
  holding_ = true;
  give_back();
  hand_out(batches);
  return true;
}

}  // namespace distbelief
