#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/wire.h"

namespace distbelief {

/// What a primary has still to tell its backup, in the order in which it did it, and how far that has come. Positions
/// count changes from 1. A change may be acknowledged to whoever asked for it when its position is durable: the backup
/// has done it too; or there is no backup; or a new one is being made, and what it lacks is in the copy that it gets or
/// behind it in this log. Bodies are borrowed until then.
///
/// A backup that is made anew gets a copy of all first, then what was changed since, then the word that it is whole.
/// From that word on nothing is durable without it. Thread-safe; next(), acknowledged() and finish_change() are for the
/// thread that sends.
class ReplicaLog {
 public:
  struct Entry {
    RequestHead request = {};
    std::span<const std::byte> body = {};
    std::uint64_t position = 0;
    std::vector<std::byte> own = {};  ///< the body, where it may not be borrowed for so long
    bool taken = false;               ///< these two: on its way; and there
    bool done = false;
  };
  /// `backup` begins with the same state as its primary; none: there is none. Positions are counted on from `last`.
  explicit ReplicaLog(std::optional<Rank> backup, std::uint64_t last = 0);

  /// A change that is being made now. Its position.
  std::uint64_t append(const RequestHead& request, std::span<const std::byte> body);
  std::uint64_t last() const;
  bool durable(std::uint64_t position) const { return position <= durable_.load(std::memory_order_acquire); }
  /// False at the deadline.
  bool wait_until_durable(std::uint64_t position, Clock::time_point deadline);

  /// The backup is lost. The next one gets `copy`, which is of this moment: nobody appends meanwhile. None: there is
  /// no next.
  void change_backup(std::optional<Rank> backup, std::string copy);
  /// The last word to a backup that lives; nothing is appended afterwards.
  void say_bye();
  /// The backup has all that was acknowledged, and nothing is without it from now on.
  bool is_whole() const;
  /// Nothing is on its way, nor waits to be. Stays so until something is appended.
  bool is_idle() const;

  // For the thread that sends.

  std::uint64_t backups_before() const;
  /// Nothing of what was next() before is being sent any more. Whom to send to.
  std::optional<Rank> finish_change();
  /// The first that was not taken yet; stays where it is until it is acknowledged or the backup changes.
  Entry* next();
  void acknowledged(Entry& entry);

 private:
  enum class Mode : std::uint8_t { alone, copying, together };
  void raise_durable_locked(std::uint64_t position);
  void own_locked(Entry& entry);
  /// While a new backup is not whole what it lacks need not wait for it, as far as there is room.
  void own_while_copying_locked(Entry& entry);

  mutable std::mutex mutex_;
  std::condition_variable raised_;
  Mode mode_;  // guarded by mutex_, as all below
  std::optional<Rank> backup_;
  std::uint64_t backups_before_ = 0;
  bool changing_ = false;        ///< finish_change() is due
  std::uint64_t copied_at_ = 0;  ///< all up to there is in the copy
  std::string copy_;
  std::vector<std::string> old_copies_;  ///< likewise for a backup that is lost
  std::size_t pieces_left_ = 0;
  bool whole_;
  std::list<Entry> queue_;
  std::list<Entry> abandoned_;  ///< for a backup that is lost; transfers may still use their bodies
  std::size_t owned_bytes_ = 0;
  std::uint64_t last_ = 0;
  std::atomic<std::uint64_t> durable_ = 0;  // only grows
};

}  // namespace distbelief
