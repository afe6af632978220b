#include "server/replica_log.h"

#include <algorithm>
#include <utility>

namespace distbelief {
namespace {

constexpr std::size_t kCopyPieceBytes = std::size_t{4} << 20;
/// Of changes that a new backup has to catch up with. What comes beyond waits for it.
constexpr std::size_t kMostOwnedBytes = std::size_t{256} << 20;

}  // namespace

ReplicaLog::ReplicaLog(std::optional<Rank> backup, std::uint64_t last)
    : mode_(backup ? Mode::together : Mode::alone),
      backup_(backup),
      whole_(backup.has_value()),
      last_(last),
      durable_(last) {}

std::uint64_t ReplicaLog::append(const RequestHead& request, std::span<const std::byte> body) {
  const std::scoped_lock lock(mutex_);
  ++last_;
  const bool all_durable = durable(last_ - 1);
  if (mode_ == Mode::alone) {
    if (all_durable) {
      raise_durable_locked(last_);
    }
    return last_;
  }
  Entry& entry = queue_.emplace_back(Entry{.request = request, .body = body, .position = last_});
  if (request.kind == RequestHead::Kind::note || request.kind == RequestHead::Kind::books) {
    own_locked(entry);  // they may be gone when the backup is
  }
  if (all_durable && !changing_) {
    own_while_copying_locked(entry);
  }
  return last_;
}

void ReplicaLog::own_locked(Entry& entry) {
  if (entry.own.empty()) {
    entry.own.assign(entry.body.begin(), entry.body.end());
    entry.body = entry.own;
    owned_bytes_ += entry.own.size();
  }
}

void ReplicaLog::own_while_copying_locked(Entry& entry) {
  if (mode_ == Mode::copying && owned_bytes_ + entry.body.size() <= kMostOwnedBytes) {
    own_locked(entry);
    raise_durable_locked(entry.position);
  }
}

std::uint64_t ReplicaLog::last() const {
  const std::scoped_lock lock(mutex_);
  return last_;
}

bool ReplicaLog::wait_until_durable(std::uint64_t position, Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return raised_.wait_until(lock, deadline, [&] { return durable(position); });
}

void ReplicaLog::raise_durable_locked(std::uint64_t position) {
  if (position > durable_.load(std::memory_order_relaxed)) {
    durable_.store(position, std::memory_order_release);
    raised_.notify_all();
  }
}

void ReplicaLog::change_backup(std::optional<Rank> backup, std::string copy) {
  const std::scoped_lock lock(mutex_);
  abandoned_.splice(abandoned_.end(), queue_);
  owned_bytes_ = 0;
  backup_ = backup;
  ++backups_before_;
  changing_ = true;
  copied_at_ = last_;
  mode_ = backup ? Mode::copying : Mode::alone;
  whole_ = false;
  pieces_left_ = 0;
  old_copies_.push_back(std::exchange(copy_, std::move(copy)));
  if (!backup) {
    copy_.clear();
    return;
  }
  const std::span<const std::byte> all = std::as_bytes(std::span(copy_));
  for (std::size_t offset = 0; offset < all.size(); offset += kCopyPieceBytes) {
    const auto piece = all.subspan(offset, std::min(kCopyPieceBytes, all.size() - offset));
    queue_.push_back({.request = {.kind = RequestHead::Kind::copy,
                                  .offset = offset,
                                  .total = all.size(),
                                  .body_bytes = piece.size()},
                      .body = piece,
                      .position = copied_at_});
    ++pieces_left_;
  }
}

void ReplicaLog::say_bye() {
  const std::scoped_lock lock(mutex_);
  if (mode_ != Mode::alone) {
    queue_.push_back({.request = {.kind = RequestHead::Kind::bye}, .position = last_});
  }
}

bool ReplicaLog::is_whole() const {
  const std::scoped_lock lock(mutex_);
  return whole_;
}

bool ReplicaLog::is_idle() const {
  const std::scoped_lock lock(mutex_);
  return queue_.empty() && !changing_;
}

std::uint64_t ReplicaLog::backups_before() const {
  const std::scoped_lock lock(mutex_);
  return backups_before_;
}

std::optional<Rank> ReplicaLog::finish_change() {
  const std::scoped_lock lock(mutex_);
  if (changing_) {
    changing_ = false;
    abandoned_.clear();
    old_copies_.clear();
    raise_durable_locked(mode_ == Mode::alone ? last_ : copied_at_);
    for (Entry& entry : queue_) {
      if (entry.position == durable_ + 1) {
        own_while_copying_locked(entry);
      }
    }
  }
  return backup_;
}

ReplicaLog::Entry* ReplicaLog::next() {
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find_if(queue_, [](const Entry& entry) { return !entry.taken; });
  if (found == queue_.end() || changing_) {
    return nullptr;
  }
  found->taken = true;
  return &*found;
}

void ReplicaLog::acknowledged(Entry& entry) {
  const std::scoped_lock lock(mutex_);
  entry.done = true;
  while (!queue_.empty() && queue_.front().done) {
    const Entry& first = queue_.front();
    owned_bytes_ -= std::min(owned_bytes_, first.own.size());
    if (first.request.kind == RequestHead::Kind::copy && --pieces_left_ == 0) {
      copy_.clear();
      copy_.shrink_to_fit();
      mode_ = Mode::together;
      queue_.push_back({.request = {.kind = RequestHead::Kind::whole}, .position = last_});
    }
    whole_ = whole_ || first.request.kind == RequestHead::Kind::whole;
    raise_durable_locked(first.position);
    queue_.pop_front();
  }
}

}  // namespace distbelief
