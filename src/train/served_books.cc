#include "train/served_books.h"

#include <algorithm>
#include <cmath>

namespace distbelief {

ServedBooks::ServedBooks(const Sampler& sampler, const Plan& plan)
    : sampler_(sampler), plan_(plan), next_epoch_(plan.first_epoch) {}

/// Whatever a process of another mind may say.
bool ServedBooks::exist(const SampleRun& samples) const {
  const auto all = static_cast<std::int64_t>(sampler_.samples());
  return samples.epoch >= 0 && samples.epoch < plan_.epochs && samples.count >= 0 && samples.count <= all &&
         samples.first >= 0 && samples.first <= all - samples.count;
}

ServedBooks::Epoch& ServedBooks::epoch_locked(std::int64_t number) {
  std::unique_ptr<Epoch>& epoch = open_[number];
  if (epoch == nullptr) {
    epoch = std::make_unique<Epoch>(sampler_.samples());
  }
  return *epoch;
}

std::span<const std::uint64_t> ServedBooks::ids_of_locked(const SampleRun& samples) {
  ids_.resize(static_cast<std::size_t>(samples.count));
  sampler_.fill(static_cast<std::uint64_t>(samples.epoch), static_cast<std::uint64_t>(samples.first), ids_);
  return ids_;
}

void ServedBooks::apply_locked(const SampleRun& samples) {
  const std::span<const std::uint64_t> ids = ids_of_locked(samples);
  SampleLedger& ledger = epoch_locked(samples.epoch).ledger;
  ledger.leased(ids);
  ledger.applied(ids);
  news_.samples += ids.size();
}

void ServedBooks::heard(const RequestHead& request, const ReplyHead& reply, std::string_view words) {
  const std::scoped_lock lock(mutex_);
  if (request.kind == RequestHead::Kind::leave) {
    left_.insert(request.incarnation);
  }
  if (!exist(request.samples) || !exist(request.done.samples)) {
    if (news_.trouble.empty()) {
      news_.trouble = "a worker told of samples that there are not";
    }
    return;
  }
  if (request.kind == RequestHead::Kind::push && reply.status <= ReplyHead::Status::nonfinite &&
      request.samples.epoch >= next_epoch_) {
    epoch_locked(request.samples.epoch).ledger.leased(ids_of_locked(request.samples));
  }
  if (!words.empty() && news_.trouble.empty()) {
    news_.trouble = words;
  }
  const UnitReport& done = request.done;
  if (done.samples.count == 0 || done.samples.epoch < next_epoch_) {
    return;
  }
  if (done.late != 0) {
    const auto known = reported_.find(done.id.lease);
    if (known != reported_.end() && done.id.end() <= known->second.next_unit) {
      return;  // somebody else was faster to compute it than this one to say so
    }
    SampleLedger& ledger = epoch_locked(done.samples.epoch).ledger;
    if (!words.empty()) {  // it is given up before it was pushed
      ledger.leased(ids_of_locked(done.samples));
    }
    ledger.returned(ids_of_locked(done.samples));
    return;
  }
  Reported& reported = reported_[done.id.lease];
  reported.epoch = done.samples.epoch;
  std::uint64_t& next = reported.next_unit;
  if (done.id.end() <= next) {
    return;  // told before
  }
  // Units that nobody reported were made by a worker that died: its heir begins after what is in every block.
  const std::uint64_t missing = done.id.seq - next;
  if (done.id.seq < next || missing > static_cast<std::uint64_t>(done.samples.first / plan_.unit_samples) ||
      done.id.count > static_cast<std::uint64_t>(done.samples.count)) {
    news_.trouble = "a worker told of samples that there are not";
    return;
  }
  const auto before = static_cast<std::int64_t>(missing) * plan_.unit_samples;
  next = done.id.end();
  apply_locked(
      {.epoch = done.samples.epoch, .first = done.samples.first - before, .count = done.samples.count + before});
  news_.units += missing + done.id.count;
  if (!std::isnan(done.loss) && done.staleness >= 0) {
    const LossSums sums = {.loss = done.loss, .correct = done.correct, .rows = done.samples.count};
    epoch_locked(done.samples.epoch).sums += sums;
    news_.sums += sums;
    const double most = StalenessCounts::kMost;
    staleness_.units[static_cast<std::size_t>(std::lround(std::min(done.staleness, most)))] += done.id.count;
    staleness_.sum += done.staleness * static_cast<double>(done.id.count);
    staleness_.count += done.id.count;
    staleness_.most = std::max(staleness_.most, done.staleness_most);
  }
  close_finished_locked();
}

void ServedBooks::close_finished_locked() {
  for (auto first = open_.begin(); first != open_.end() && first->first == next_epoch_; first = open_.begin()) {
    if (first->second->ledger.total().applied < sampler_.samples()) {
      return;
    }
    closed_ += first->second->ledger.close_epoch();
    news_.closed.push_back({.epoch = first->first, .sums = first->second->sums});
    unevaluated_.push_back(news_.closed.back());
    std::erase_if(reported_, [&](const auto& lease) { return lease.second.epoch <= next_epoch_; });
    ++next_epoch_;
    open_.erase(first);
  }
}

ServedBooks::News ServedBooks::take() {
  const std::scoped_lock lock(mutex_);
  News taken = news_;
  news_.sums = {};
  news_.closed.clear();
  return taken;
}

void ServedBooks::evaluated() {
  const std::scoped_lock lock(mutex_);
  unevaluated_.erase(unevaluated_.begin());
}

void ServedBooks::take_over(std::int64_t evaluated_epochs) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(unevaluated_, [&](const ClosedEpoch& closed) { return closed.epoch < evaluated_epochs; });
  news_.closed = unevaluated_;
  news_.sums = {};
}

SampleAudit ServedBooks::total() const {
  const std::scoped_lock lock(mutex_);
  SampleAudit sum = closed_;
  for (const auto& [number, epoch] : open_) {
    sum += epoch->ledger.total();
  }
  return sum;
}

void ServedBooks::close_all() {
  const std::scoped_lock lock(mutex_);
  for (const auto& [number, epoch] : open_) {
    closed_ += epoch->ledger.close_epoch();
  }
  open_.clear();
}

StalenessCounts ServedBooks::staleness() const {
  const std::scoped_lock lock(mutex_);
  return staleness_;
}

int ServedBooks::staying(const std::vector<std::uint64_t>& workers) const {
  const std::scoped_lock lock(mutex_);
  return static_cast<int>(
      std::ranges::count_if(workers, [&](std::uint64_t worker) { return !left_.contains(worker); }));
}

LossSums ServedBooks::open_sums() const {
  const std::scoped_lock lock(mutex_);
  const auto found = open_.find(next_epoch_);
  return found == open_.end() ? LossSums{} : found->second->sums;
}

}  // namespace distbelief
