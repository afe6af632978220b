#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "cluster/membership.h"

namespace distbelief {

/// Which samples are with whom. Epochs are cut into contiguous pieces as they are asked for, so that each sample is in
/// exactly one lease an epoch, whoever asks and however much at a time. A lease ends only by being done: those of a
/// dead worker are first withheld (orphan()), because what it has already pushed may still arrive, and go to others
/// with the same number once nothing more can (release()). Numbers are never given to other samples. One thread.
class LeaseTable {
 public:
  struct Options {
    std::int64_t samples_per_epoch = 0;
    std::int64_t first_epoch = 0;
    std::int64_t epochs = 0;                                 ///< up to and without this one
    std::uint64_t first_id = 1;                              ///< above all that any earlier coordinator of the job gave
    std::int64_t first_position = 0;                         ///< in the first epoch
    std::vector<Lease> returned = {};                        ///< of a run that goes on: what comes before all that
    std::vector<std::pair<std::uint64_t, Lease>> held = {};  ///< with their owners: what a table before this gave
    /// While fewer samples than these are done, one member has leases and all others wait: a warm start.
    std::int64_t warm_samples = 0;
  };
  /// Somebody else has the last samples, which are done soon, or come back; or somebody else begins alone.
  struct Wait {};
  /// Every lease of every epoch is done.
  struct Finished {};
  using Answer = std::variant<Lease, Wait, Finished>;

  explicit LeaseTable(const Options& options);

  /// Whether there is something that came back, which this member is given before anything new.
  bool has_back_for(std::uint64_t owner) const;
  /// Whether the next new lease of at most so many samples has the sample at that share of all of all epochs. Never
  /// during a warm start, when one member has all.
  bool next_contains(double share, std::int64_t samples) const;

  /// At most `samples` of one epoch for the member `owner`; what came back goes first, and whole, but what it gave back
  /// itself after all else of that epoch: others may be faster.
  Answer request(std::uint64_t owner, std::int64_t samples);
  /// False when the lease is not with `owner`: it was taken from it, or done before.
  [[nodiscard]] bool complete(std::uint64_t owner, std::uint64_t id);
  /// A living holder returns a lease whose pushes below `next_push` are done and of which nothing is on its way. False
  /// as with complete().
  [[nodiscard]] bool give_back(std::uint64_t owner, std::uint64_t id, std::uint64_t next_push);

  /// Withholds what `owner` has; it can complete nothing more.
  void orphan(std::uint64_t owner);
  /// What one server has of the withheld leases of `owner`: by lease, the first push that some block of it lacks. Of a
  /// lease that it does not name it has nothing. The next holder begins at the lowest that any server told.
  void note_progress(std::uint64_t owner, const std::map<std::uint64_t, std::uint64_t>& next_pushes);
  /// What `owner` had can be granted again.
  void release(std::uint64_t owner);

  /// All leases below are done.
  std::uint64_t low_water() const;
  bool finished() const { return next_epoch_done() && open_.empty() && returned_.empty(); }
  std::size_t open_count() const { return open_.size() + returned_.size(); }

 private:
  struct Open {
    Lease lease;
    std::uint64_t owner = 0;
    bool orphaned = false;
    std::optional<std::uint64_t> lowest_next_push = {};
  };
  struct Returned {
    Lease lease;
    std::optional<std::uint64_t> giver = {};  ///< a living member that gave it back
  };
  bool warming() const { return warm_done_ < options_.warm_samples && !finished(); }
  bool is_with(std::uint64_t owner, std::uint64_t id) const;
  bool next_epoch_done() const { return epoch_ >= options_.epochs || options_.samples_per_epoch == 0; }

  const Options options_;
  std::int64_t epoch_;
  std::int64_t position_ = 0;
  std::uint64_t next_id_;
  std::int64_t warm_done_ = 0;  // samples
  std::int64_t warm_given_ = 0;
  std::optional<std::uint64_t> warm_owner_;
  std::map<std::uint64_t, Open> open_;          // by lease
  std::map<std::uint64_t, Returned> returned_;  // by lease; to be granted again, lowest first
};

}  // namespace distbelief
