#include "train/portion_books.h"

#include <algorithm>

#include "server/state_bytes.h"

namespace distbelief {

std::uint64_t PortionBooks::begin(std::int64_t samples, int workers) {
  const std::scoped_lock lock(mutex_);
  table_.begin(samples, workers);
  ++evaluation_;
  open_ = false;
  sums_ = {};
  return table_.first_id();
}

void PortionBooks::open() {
  const std::scoped_lock lock(mutex_);
  open_ = true;
}

void PortionBooks::end() {
  const std::scoped_lock lock(mutex_);
  over_ = true;
}

std::optional<Work> PortionBooks::work(const RequestHead& request) {
  const std::scoped_lock lock(mutex_);
  if (over_ || lost_.contains(request.incarnation)) {
    return Work{};
  }
  if (!open_) {
    return std::nullopt;
  }
  const bool ahead = request.awaits_newer == 0;
  const std::optional<PortionTable::Unit> unit = table_.request(request.incarnation, ahead);
  if (!unit) {
    return std::nullopt;
  }
  return Work{.evaluation = evaluation_,
              .unit = unit->id,
              .samples = {.epoch = 0, .first = unit->first_sample, .count = unit->samples},
              .low_water = table_.first_id(),
              .scale = 1.0 / static_cast<double>(table_.samples())};
}

void PortionBooks::heard(const RequestHead& request, const ReplyHead& /*reply*/, std::string_view /*words*/) {
  const std::scoped_lock lock(mutex_);
  if (request.kind == RequestHead::Kind::leave) {
    left_.insert(request.incarnation);
  }
  const UnitReport& done = request.done;
  if (done.samples.count > 0 && table_.complete(request.incarnation, done.id.lease) == PortionTable::Completed::first) {
    sums_ += {.loss = done.loss, .correct = done.correct, .rows = done.samples.count};
  }
  changed_.notify_all();
}

void PortionBooks::lose(std::uint64_t worker) {
  const std::scoped_lock lock(mutex_);
  table_.lose(worker);
  lost_.insert(worker);
  changed_.notify_all();
}

PortionBooks::Progress PortionBooks::wait(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [&] { return table_.done(); });
  return {.done = table_.done(), .sums = sums_};
}

int PortionBooks::staying(const std::vector<std::uint64_t>& workers) const {
  const std::scoped_lock lock(mutex_);
  return static_cast<int>(
      std::ranges::count_if(workers, [&](std::uint64_t worker) { return !left_.contains(worker); }));
}

std::string PortionBooks::copy() const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::uint64_t> left(left_.begin(), left_.end());
  StateWriter writer;
  writer.numbers("left", left);
  return writer.take();
}

void PortionBooks::become(std::string_view copy) {
  StateReader reader(copy, "the books of who leads");
  std::vector<std::uint64_t> left;
  reader.numbers("left", left);
  reader.expect_end();
  const std::scoped_lock lock(mutex_);
  left_ = {left.begin(), left.end()};
}

std::uint64_t PortionBooks::next_id() const {
  const std::scoped_lock lock(mutex_);
  return table_.next_id();
}

void PortionBooks::begin_ids(std::uint64_t first) {
  const std::scoped_lock lock(mutex_);
  table_.begin_ids(first);
}

std::uint64_t PortionBooks::evaluation() const {
  const std::scoped_lock lock(mutex_);
  return evaluation_;
}

void PortionBooks::set_evaluation(std::uint64_t last) {
  const std::scoped_lock lock(mutex_);
  evaluation_ = last;
}

PortionTable::Counts PortionBooks::counts() const {
  const std::scoped_lock lock(mutex_);
  return table_.counts();
}

PortionTable::Counts PortionBooks::settled_counts() const {
  const std::scoped_lock lock(mutex_);
  return table_.settled_counts();
}

void PortionBooks::set_counts(const PortionTable::Counts& counts) {
  const std::scoped_lock lock(mutex_);
  table_.set_counts(counts);
}

SampleAudit PortionBooks::audit() const {
  const PortionTable::Counts counts = this->counts();
  return {.leased = static_cast<std::uint64_t>(counts.handed_out),
          .applied = static_cast<std::uint64_t>(counts.done),
          .dropped = static_cast<std::uint64_t>(counts.handed_out - counts.done)};
}

}  // namespace distbelief
