#include "data/read_ahead.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace distbelief {

void read_batch(const Dataset& dataset, const Sampler& sampler, const BatchPlace& place,
                std::vector<std::uint64_t>& ids, Batch& batch) {
  ids.resize(place.size);
  sampler.fill(place.epoch, place.position, ids);
  dataset.read(ids, place.epoch, batch);
}

ReadAhead::ReadAhead(const Dataset& dataset, const Sampler& sampler, int threads, int most)
    : dataset_(dataset), sampler_(sampler), slots_(static_cast<std::size_t>(std::max(threads, most))) {
  check(threads > 0, "somebody reads");
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this](const std::stop_token& stop) { run(stop); });
  }
}

ReadAhead::~ReadAhead() {
  for (std::jthread& thread : threads_) {
    thread.request_stop();  // all first, so that they stop side by side
  }
}

void ReadAhead::plan(const BatchPlace& place) {
  check(has_room(), "the plan has room");
  const std::scoped_lock lock(mutex_);
  slot(planned_++).place = place;
  changed_.notify_all();
}

void ReadAhead::run(const std::stop_token& stop) {
  std::vector<std::uint64_t> ids;
  std::unique_lock lock(mutex_);
  for (;;) {
    const bool go = changed_.wait(lock, stop, [&] { return claimed_ < planned_; });
    if (!go || stop.stop_requested()) {
      return;
    }
    Slot& mine = slot(claimed_++);
    lock.unlock();
    try {
      read_batch(dataset_, sampler_, mine.place, ids, mine.batch);
    } catch (...) {
      mine.error = std::current_exception();
    }
    lock.lock();
    mine.ready = true;
    changed_.notify_all();
  }
}

void ReadAhead::take(Batch& batch) {
  check(taken_ < planned_, "what is taken was planned");
  std::unique_lock lock(mutex_);
  Slot& first = slot(taken_);
  changed_.wait(lock,
                [&] { return first.ready; });  // no deadline: a reading thread always ends, with a batch or an error
  if (first.error) {
    std::rethrow_exception(first.error);
  }
  std::swap(batch, first.batch);
  first.ready = false;
  ++taken_;
}

void ReadAhead::drop() {
  std::unique_lock lock(mutex_);
  planned_ = claimed_;
  for (; taken_ < claimed_; ++taken_) {
    Slot& first = slot(taken_);
    changed_.wait(lock, [&] { return first.ready; });  // no deadline: as in take()
    first.ready = false;
    first.error = nullptr;
  }
}

}  // namespace distbelief
