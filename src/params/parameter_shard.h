#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "params/float_run.h"
#include "params/parameter_table.h"
#include "params/state_visitor.h"
#include "params/update_rule.h"
#include "tensor/buffer.h"

namespace distbelief {

/// Names one push: the seq-th unit, from 0, of a lease of samples, or so many from there on. Lease ids are never
/// reused.
struct PushId {
  std::uint64_t lease = 0;
  std::uint64_t seq = 0;
  std::uint64_t count = 1;

  std::uint64_t end() const { return seq + count; }
};

/// How many updates the values have seen.
struct Version {
  std::uint64_t value = 0;
  friend bool operator==(const Version&, const Version&) = default;
  friend std::strong_ordering operator<=>(const Version& a, const Version& b) { return a.value <=> b.value; }
};

enum class ApplyResult {
  applied,
  duplicate,  ///< this push was applied before; nothing changed
  stale,      ///< units of the lease before this one are missing, or a part of it is there; nothing changed
  dropped,    ///< the gradient is not finite; values are untouched, and the push counts as done
};

struct UpdateOptions {
  float rate = 0;
  float weight_decay = 0;
  float clip_norm = 0;          ///< shrinks the gradient of this range to this Euclidean length; 0: no limit
  float clip_value = 0;         ///< then limits each element to ± this; 0: no limit
  bool drop_nonfinite = false;  ///< measures the gradient first, also when clip_norm is 0
  /// An update is made of so many pushes: of their mean, and clipped as such.
  int gather = 1;
  /// The rate of each push is divided by its staleness, if that is over 1. Of pushes that are gathered each counts in
  /// the mean with what its rate is divided by, and the update has the mean of their rates.
  bool staleness_rate = false;
};

struct UpdateReport {
  ApplyResult result = ApplyResult::applied;
  std::optional<double> gradient_norm = {};  ///< before clipping; when clip_norm or drop_nonfinite asked to measure it
  std::uint64_t staleness = 0;               ///< updates between what the gradient was computed from and this one
  Version version = {};                      ///< after it; the same as before when the push was only gathered
  bool finite = true;                        ///< false: applied, and some of the values are NaN or infinite now
};

/// A contiguous range of the flat parameter space with the optimizer state that belongs to it. The same class is a
/// server's slice, a worker's optimizer slice and, when its range is everything, a plain local model: it cannot tell.
/// Thread-safe, except that who lends the memory of the values may read it directly only while nobody calls apply().
class ParameterShard {
 public:
  /// `values` (of range.size() floats) and `rule` are borrowed and must outlive the shard. Of the table, with what is
  /// frozen in it, a copy of all that matters is taken.
  ParameterShard(const ParameterTable& table, Range range, const UpdateRule& rule, std::span<float> values);

  /// Applies the push once, however often it arrives. Each of `parts` covers the range. The gradient is scale × their
  /// sum; for averaged parameters the mean of the parts is what was observed. The bits of the result do not depend on
  /// the number of threads.
  [[nodiscard]] UpdateReport apply(PushId push, std::span<const std::span<const float>> parts, float scale,
                                   const UpdateOptions& options, Version seen);
  /// The same with a gradient that is 0 outside of some runs: it leaves the bits that zeros there would, unless there
  /// are values that are not finite already. Takes time in proportion to the runs where the rule rests at 0 and nothing
  /// else asks for all of the gradient: no decay, no gathering, no length to measure, nothing averaged in the range.
  [[nodiscard]] UpdateReport apply(PushId push, const GradientRuns& gradient, float scale, const UpdateOptions& options,
                                   Version seen);
  /// Takes the push once, however often it arrives, by letting `take` do with it what it likes; no rule is applied.
  /// Nobody else reads or changes the range meanwhile.
  [[nodiscard]] UpdateReport take(PushId push, const std::function<void()>& take, Version seen);
  /// Lets `change` do with the values what it likes, while nobody else reads or changes the range. They are of a new
  /// version if it says that it changed some.
  void rewrite(const std::function<bool()>& change);
  /// Makes an update of what is gathered, if that are options.gather pushes or more. Whether the values are finite.
  [[nodiscard]] bool flush(const UpdateOptions& options);
  /// Copies the values of one version, never a mix of two.
  Version read(std::span<float> out) const;
  /// The same for some places, one after the other.
  Version read(const FloatRuns& places, std::span<float> out) const;

  Version version() const;
  /// How many units have entered, in updates or gathered for the next one.
  std::uint64_t pushes() const;
  Range range() const { return range_; }
  const UpdateRule& rule() const { return rule_; }
  /// The seq that the lease's next push must have; 0 for a lease never seen.
  std::uint64_t next_seq(std::uint64_t lease) const;
  /// Forgets leases below `low_water`, all of which are done; their pushes are duplicates from now on.
  void prune_leases(std::uint64_t low_water);

  /// Shows each of the rule's slots under its name as range().size() floats, then "updates", "version", "pushes",
  /// "low_water" and "next_seq" (pairs of lease and seq), and what is gathered. The values are their owner's to save. A
  /// visitor that overwrites must fill in a whole, valid state.
  void visit_state(StateVisitor& visitor);
  /// The same after the values, as "values", all of one version.
  void visit_values_and_state(StateVisitor& visitor);

 private:
  static constexpr std::size_t kMaxSlots = 8;
  /// Places relative to range_.begin that are treated alike; lies within one chunk.
  struct Piece {
    Range range;
    bool averaged;
    bool decays;
    float average_rate;
  };
  /// What one thread does at a time: small enough that the sum of its parts is still in cache when the rule reads it.
  struct Chunk {
    std::size_t first_piece;
    std::size_t end_piece;
  };
  using Parts = std::span<const std::span<const float>>;

  void cut(const ParameterTable& table);
  std::span<const Piece> pieces_of(const Chunk& chunk) const {
    return std::span(pieces_).subspan(chunk.first_piece, chunk.end_piece - chunk.first_piece);
  }
  struct Gathered {
    Buffer sums;  ///< weighted; of averaged parameters what was observed; empty until it is needed
    std::uint64_t count = 0;
    double weight = 0;
  };
  /// What the parts of an update are multiplied with.
  struct Scales {
    float gradient = 1;
    float observed = 1;
  };

  void visit_state_locked(StateVisitor& visitor);
  /// Whether the push is the next of its lease; then it counts as taken. Otherwise the report says what it is.
  bool enter(PushId push, Version seen, UpdateReport& report);
  /// What the staleness of a push leaves of its rate.
  static double weight_of(const UpdateReport& report, const UpdateOptions& options);
  void take(UpdateReport& report, Parts parts, float scale, const UpdateOptions& options);
  /// Whether elements whose gradient is 0 stay as they are, so that an update need not look at them.
  bool rests_at_zero(const UpdateOptions& options) const;
  /// Whether all that it wrote is finite.
  bool apply_runs(const GradientRuns& gradient, float scale, float rate, float clip);
  std::vector<double> square_sums(Parts parts) const;
  void gather(Parts parts, float scale, double weight);
  bool update_of_gathered(UpdateReport& report, UpdateOptions options);
  /// False when the gradient is not finite and was dropped.
  bool update(UpdateReport& report, Parts parts, Scales scales, const UpdateOptions& options);
  /// Whether all that it wrote is finite.
  bool apply_chunk(const Chunk& chunk, Parts parts, Scales scales, const UpdateOptions& options);

  const Range range_;
  const UpdateRule& rule_;
  std::vector<Piece> pieces_;
  std::vector<Chunk> chunks_;
  bool has_averaged_ = false;  ///< some pieces are

  mutable std::mutex mutex_;  // guards all below and the memory they point to
  std::span<float> values_;
  std::vector<Buffer> slots_;
  std::uint64_t updates_ = 0;
  Version version_;
  std::uint64_t pushes_ = 0;
  Gathered gathered_;
  std::uint64_t low_water_ = 0;
  std::map<std::uint64_t, std::uint64_t> next_seq_;
};

}  // namespace distbelief
