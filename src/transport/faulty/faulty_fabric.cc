#include "transport/faulty/faulty_fabric.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/check.h"

namespace distbelief {
namespace {

constexpr std::chrono::microseconds kLookAgain(100);

std::uint64_t number_of(Rank rank) { return static_cast<std::uint64_t>(rank.value); }

}  // namespace

FaultyFabric::FaultyFabric(std::unique_ptr<Fabric> fabric, std::uint64_t seed)
    : fabric_(std::move(fabric)), random_(seed, RandomUse::fault) {}

FaultyFabric::~FaultyFabric() {
  for (const auto& [transfer, open] : open_) {
    if (open->released) {
      fabric_->cancel(open->inner);
    }
  }
}

FaultyFabric::FaultId FaultyFabric::inject(const Fault& fault) {
  check(fault.kind != Fault::Kind::slow || fault.bytes_per_second > 0, "a slow link carries something");
  const std::scoped_lock lock(mutex_);
  faults_.emplace(next_id_, fault);
  return {next_id_++};
}

void FaultyFabric::lift(FaultId id) {
  const std::scoped_lock lock(mutex_);
  faults_.erase(id.value);
}

void FaultyFabric::lift_all() {
  const std::scoped_lock lock(mutex_);
  faults_.clear();
}

bool FaultyFabric::affects(const Fault& fault, Rank peer, Clock::time_point now) const {
  return (!fault.peer || *fault.peer == peer) && fault.from <= now && now < fault.until;
}

bool FaultyFabric::has_faults() {
  const std::scoped_lock lock(mutex_);
  return !faults_.empty();
}

bool FaultyFabric::is_cut(Rank peer, Clock::time_point now) {
  const std::scoped_lock lock(mutex_);
  return !lost_.contains(peer.value) && std::ranges::any_of(faults_, [&](const auto& entry) {
    return entry.second.kind == Fault::Kind::cut && affects(entry.second, peer, now);
  });
}

/// Decides what happens to a message that is to be sent.
void FaultyFabric::plan_send(const Transfer& transfer, Open& open, Clock::time_point now) {
  const Rank peer = transfer.peer;
  const std::uint64_t number = sends_[peer.value]++;
  const auto stream = [&](std::uint64_t id) { return (id << 16) | number_of(peer); };
  open.not_before = now;
  const std::scoped_lock lock(mutex_);
  for (const auto& [id, fault] : faults_) {
    if (!affects(fault, peer, now)) {
      continue;
    }
    if (fault.kind == Fault::Kind::delay) {
      const double part = random_.uniform(stream(id), number);
      open.not_before += fault.delay + std::chrono::duration_cast<Clock::duration>(part * fault.jitter);
    } else if (fault.kind == Fault::Kind::drop) {
      open.dropped |= random_.uniform(stream(id), number) < fault.probability;
    } else if (fault.kind == Fault::Kind::slow) {
      const std::chrono::duration<double> takes(static_cast<double>(transfer.bytes) / fault.bytes_per_second);
      Clock::time_point& free = carried_until_[peer.value];
      free = std::max(free, now) + std::chrono::duration_cast<Clock::duration>(takes);
      open.not_before = std::max(open.not_before, free);
    }
  }
}

void FaultyFabric::post(Transfer& transfer) {
  auto made = std::make_unique<Open>();
  Open& open = *made;
  if (transfer.sends) {
    plan_send(transfer, open, Clock::now());
  }
  open_[&transfer] = std::move(made);
  release(transfer, open);
}

/// Posts what may go out now. A receive always may: its message comes when the sender's side lets it.
void FaultyFabric::release(Transfer& transfer, Open& open) {
  if (open.released || open.dropped || (transfer.sends && ended_.contains(transfer.tag.epoch))) {
    return;
  }
  if (!transfer.sends) {
    open.released = true;
    fabric_->receive(open.inner, transfer.peer, transfer.tag, {transfer.data, transfer.bytes});
    return;
  }
  const Clock::time_point now = Clock::now();
  bool lost = false;
  {
    const std::scoped_lock lock(mutex_);
    lost = lost_.contains(transfer.peer.value);
  }
  if (lost || (now >= open.not_before && !is_cut(transfer.peer, now))) {
    open.released = true;
    fabric_->send(open.inner, transfer.peer, transfer.tag, {transfer.data, transfer.bytes});
  }
}

void FaultyFabric::release_all() {
  end_cuts(Clock::now());
  for (const auto& [transfer, open] : open_) {
    release(*transfer, *open);
  }
}

void FaultyFabric::end_cuts(Clock::time_point now) {
  std::vector<Rank> cut_off;
  {
    const std::scoped_lock lock(mutex_);
    std::erase_if(faults_, [&](const auto& entry) {
      const Fault& fault = entry.second;
      if (now < fault.until) {
        return false;
      }
      for (int peer = 0; peer < size() && fault.kind == Fault::Kind::cut && fault.then_lost; ++peer) {
        if (Rank{peer} != rank() && (!fault.peer || *fault.peer == Rank{peer})) {
          cut_off.push_back(Rank{peer});
        }
      }
      return true;
    });
  }
  for (const Rank peer : cut_off) {
    lose(peer, "was cut off");
  }
}

bool FaultyFabric::finished(Transfer& transfer, Open& open) {
  if (open.dropped) {
    return true;
  }
  if (ended_.contains(transfer.tag.epoch)) {
    return !open.released || fabric_->progress(open.inner);  // no cut keeps that back
  }
  // A message that came through a cut has come, but nobody knows yet.
  return open.released && fabric_->progress(open.inner) && !is_cut(transfer.peer, Clock::now());
}

bool FaultyFabric::progress(Transfer& transfer) {
  const auto found = open_.find(&transfer);
  check(found != open_.end(), "only what was posted can make progress");
  release_all();
  return finished(transfer, *found->second);
}

Outcome FaultyFabric::wait(Transfer& transfer, Clock::time_point deadline) {
  const auto found = open_.find(&transfer);
  check(found != open_.end(), "only what was posted can be waited for");
  Open& open = *found->second;
  for (;;) {
    release_all();
    if (finished(transfer, open)) {
      return conclude(transfer);
    }
    const bool all_released =
        std::ranges::all_of(open_, [](const auto& entry) { return entry.second->dropped || entry.second->released; });
    if (all_released && !has_faults()) {
      Outcome outcome = fabric_->wait(open.inner, deadline);
      open_.erase(found);
      transfer.state = Transfer::State::idle;
      return outcome;
    }
    const Clock::time_point now = Clock::now();
    if (now >= deadline) {
      cancel(transfer);
      return {Outcome::Kind::timed_out, transfer.peer, "did not answer in time"};
    }
    std::this_thread::sleep_until(std::min(deadline, now + kLookAgain));
  }
}

/// What became of a finished transfer, which is idle then.
Outcome FaultyFabric::conclude(Transfer& transfer) {
  const auto found = open_.find(&transfer);
  Open& open = *found->second;
  Outcome outcome;
  if (open.released) {
    outcome = fabric_->wait(open.inner, Clock::now());
  } else if (!open.dropped) {
    outcome = {Outcome::Kind::interrupted, transfer.peer, ended_.reason(transfer.tag.epoch)};
  }
  open_.erase(found);
  transfer.state = Transfer::State::idle;
  return outcome;
}

void FaultyFabric::cancel(Transfer& transfer) {
  if (const auto found = open_.find(&transfer); found != open_.end()) {
    if (found->second->released) {
      fabric_->cancel(found->second->inner);
    }
    open_.erase(found);
  }
  transfer.state = Transfer::State::idle;
}

void FaultyFabric::lose(Rank peer, const std::string& reason) {
  {
    const std::scoped_lock lock(mutex_);
    lost_.insert(peer.value);
  }
  fabric_->lose(peer, reason);
}

void FaultyFabric::end_epoch(std::uint32_t epoch, const std::string& reason) {
  ended_.add(epoch, reason);
  fabric_->end_epoch(epoch, reason);
}

}  // namespace distbelief
