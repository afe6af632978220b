#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "server/wire.h"

namespace distbelief {

/// Which portions of a batch are with whom, while an objective is evaluated over all of it. The batch is cut into
/// portions of equal size, far more than there are workers. Whoever is free gets the next few of them as a unit, whose
/// gradient is pushed whole; units become shorter towards the end. A worker is given portions that it had in the
/// evaluation before, as long as there are some, because it may still hold their samples. When all are handed out,
/// units that are not done are handed out again to whoever is free, the oldest first: the first answer counts. What a
/// lost worker had goes to others. A unit keeps its number and its portions whoever has it: servers know by the number
/// which of them took its gradient already. One thread.
class PortionTable {
 public:
  struct Options {
    std::int64_t portion = 1024;  ///< samples
    int most_portions = 4;        ///< of a unit
    bool backups = true;          ///< units are handed out again when there is nothing else to do
  };
  /// Portions [first, first + count), by their place in the batch; the same numbers name the same samples each time.
  struct Unit {
    std::uint64_t id = 0;  ///< never used again
    std::int64_t first_portion = 0;
    std::int64_t portions = 0;
    std::int64_t first_sample = 0;
    std::int64_t samples = 0;
    bool backup = false;  ///< somebody else has it too
  };
  enum class Completed {
    first,
    again,    ///< somebody else was first, or the evaluation is over: this answer is dropped
    unknown,  ///< this worker has no such unit
  };

  explicit PortionTable(const Options& options) : options_(options) {}

  /// The next evaluation, over `samples` samples, by so many workers at most; the one before is done, or given up.
  void begin(std::int64_t samples, int workers);
  /// For a worker that has nothing to do, or, with `ahead`, that will have nothing soon: it gets no backups then, and
  /// nothing when only few portions are left. Nothing: there is nothing to do for now.
  std::optional<Unit> request(std::uint64_t owner, bool ahead);
  Completed complete(std::uint64_t owner, std::uint64_t id);
  /// What only `owner` has goes to others.
  void lose(std::uint64_t owner);

  bool done() const { return undone_ == 0; }
  std::int64_t portions() const { return static_cast<std::int64_t>(holders_.size()); }
  std::int64_t samples() const { return samples_; }
  /// All units that are handed out from now on have at least this id.
  std::uint64_t next_id() const { return next_id_; }
  /// Ids begin there, if they are not beyond it yet: for a job that goes on.
  void begin_ids(std::uint64_t first) { next_id_ = std::max(next_id_, first); }
  /// The first of this evaluation.
  std::uint64_t first_id() const { return first_id_; }

  /// Of all evaluations, in samples. What was handed out is done, answered again, lost with who had it, or still with
  /// somebody.
  struct Counts {
    std::int64_t handed_out = 0;
    std::int64_t done = 0;
    std::int64_t again = 0;
    std::int64_t lost = 0;
    std::int64_t backups = 0;  ///< of those handed out
    std::int64_t moved = 0;    ///< of those handed out: to another worker than had them before
  };
  const Counts& counts() const { return counts_; }
  /// The same for who would go on from here: an evaluation that is not done is made anew, and nothing of it counts.
  Counts settled_counts() const {
    Counts counts = counts_;
    counts.done = done() ? counts.done : done_before_;
    return counts;
  }
  void set_counts(const Counts& counts) { counts_ = counts; }

 private:
  static constexpr std::uint64_t kNobody = ~std::uint64_t{0};
  struct Handed {
    Unit unit;
    std::vector<std::uint64_t> owners = {};  ///< that have not answered
    bool open = true;                   ///< no answer counted yet
  };
  /// A run of portions that nobody has, at most so long; by preference what `owner` had.
  Unit cut_free(std::uint64_t owner, std::int64_t most);
  std::optional<Unit> take_returned(std::uint64_t owner);
  std::optional<Unit> take_backup(std::uint64_t owner);
  Unit hand_out(Handed& handed, std::uint64_t owner);

  const Options options_;
  std::int64_t samples_ = 0;
  std::int64_t workers_ = 1;
  std::uint64_t next_id_ = 1;
  std::uint64_t first_id_ = 1;
  std::int64_t undone_ = 0;                ///< portions
  std::int64_t free_count_ = 0;            ///< portions that nobody has
  std::vector<char> free_;                 ///< by portion
  std::vector<std::uint64_t> holders_;     ///< by portion: who had it last
  std::map<std::uint64_t, Handed> units_;  ///< by id, so by age
  Counts counts_;
  std::int64_t done_before_ = 0;  ///< samples, when the evaluation began
};

}  // namespace distbelief
