#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace distbelief {

/// What became of the samples. At the end of an epoch leased == applied + dropped + lost, unless something is wrong.
/// A sample that was dropped may be handed out again, and counts as leased again.
struct SampleAudit {
  std::uint64_t leased = 0;      ///< handed to a worker
  std::uint64_t applied = 0;     ///< entered an update
  std::uint64_t dropped = 0;     ///< discarded by a rule: a late gradient, a bound on staleness
  std::uint64_t lost = 0;        ///< leased, but neither applied nor dropped when the epoch closed
  std::uint64_t duplicated = 0;  ///< applications after a sample's first in one epoch

  SampleAudit& operator+=(const SampleAudit& other);
  friend bool operator==(const SampleAudit&, const SampleAudit&) = default;
};

/// Counts samples by their ids where they are handed out and where they are applied; nothing is inferred from the
/// configuration. A byte for each sample of the data set. Leasing a sample again in one epoch (its first holder died)
/// counts once. Ids must be below `samples`. Thread-safe.
class SampleLedger {
 public:
  explicit SampleLedger(std::uint64_t samples);

  void leased(std::span<const std::uint64_t> ids);
  void applied(std::span<const std::uint64_t> ids);
  void dropped(std::span<const std::uint64_t> ids);
  /// Dropped, and not leased any more: to be handed out again in this epoch. What is applied stays so.
  void returned(std::span<const std::uint64_t> ids);

  bool has_applied(std::uint64_t id) const;
  /// Applied or dropped in this epoch: not to be handed out in it any more, unless dropped ones are.
  bool is_settled(std::uint64_t id) const;
  /// How many are.
  std::uint64_t settled() const;
  /// Forgets who was dropped, so that each can be handed out again in this epoch; the counts stay.
  void reopen_dropped();

  /// Ends the epoch: finds what was lost, starts the next one clean, and returns the closed epoch's audit.
  SampleAudit close_epoch();

  /// Of all epochs, the open one included; what is lost is known only of closed ones.
  SampleAudit total() const;

  SampleAudit closed() const;
  /// Counts what became of the samples of epochs that were closed elsewhere.
  void add_closed(const SampleAudit& audit);

  /// The ledger in the middle of an epoch, as bytes: two bits for each sample and what does not fit into them.
  std::string save() const;
  /// The same of the open epoch alone, as if there had been no other.
  std::string save_epoch() const;
  /// Of how many samples the ledger is that save() gave. Throws FileError naming `file` when it is none.
  static std::uint64_t samples_in(std::string_view saved, const std::string& file);
  /// Continues from what save() gave. Throws FileError naming `file` when it is damaged or of another number of
  /// samples.
  void restore(std::string_view saved, const std::string& file);
  /// Takes over the open epoch of another ledger, as save() gave it; nothing of the own one is marked yet. Throws as
  /// restore() does.
  void take_over_epoch(std::string_view saved, const std::string& file);

 private:
  template <typename Mark>
  void mark_all(std::span<const std::uint64_t> ids, Mark mark);
  std::string save_with(const SampleAudit& closed) const;

  mutable std::mutex mutex_;
  std::vector<std::uint8_t> marks_;  // guarded by mutex_
  SampleAudit epoch_;                // guarded by mutex_
  SampleAudit closed_;               // guarded by mutex_
};

}  // namespace distbelief
