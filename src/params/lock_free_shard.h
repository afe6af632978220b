#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "params/parameter_shard.h"
#include "params/touched_rows.h"

namespace distbelief {

/// A gradient over the flat space; of parameters with rows only the touched ones are meant, the rest is garbage.
struct SparseGradient {
  std::span<const float> floats;
  std::span<const TouchedRows> touched;
};

/// The values and slots of a whole model that several threads read and update at the same time without locks, as in
/// Hogwild! (Niu et al. 2011). Each thread computes on a copy of its own, of the whole flat space, into which it reads
/// what it needs; nothing but this class touches what is shared. Dense blocks are copied by racy_copy.h, rows by
/// relaxed atomic loads and stores of single floats. An update takes time in proportion to the dense blocks and the
/// touched rows, however many rows there are.
///
/// An update reads a few numbers, lets the rule change them and writes them back: who writes the same numbers in
/// between is overwritten. So a rule must bear that a slot and its value are not of the same update, and that some
/// updates of both are lost: bears_races() says which do.
///
/// Weight decay pulls at what an update touches: a row decays when a batch has it, so that a rare feature keeps its
/// weight for longer (Niu et al. divide the penalty over the samples of a feature to the same end).
class LockFreeShard {
 public:
  /// `table`, `rule` and `values` (the whole flat space) are borrowed and must outlive the shard.
  LockFreeShard(const ParameterTable& table, const UpdateRule& rule, std::span<float> values);

  static bool bears_races(const UpdateRule& rule) { return rule.name() == "sgd" || rule.name() == "adagrad"; }

  // Thread-safe; `copy` is the calling thread's.

  /// Copies all that has no rows, frozen parameters excepted.
  void read_dense(std::span<float> copy) const;
  void read_rows(std::span<const TouchedRows> touched, std::span<float> copy) const;
  /// The gradient is scale × gradient. Brings the dense part of `copy` to what it leaves in the shard. With one thread
  /// the values have the bits that ParameterShard::apply() gives, but for a gradient shortened by clip_norm (its length
  /// is added up in another order) and for the decay of rows. Applied or dropped.
  [[nodiscard]] UpdateReport apply(const SparseGradient& gradient, float scale, const UpdateOptions& options,
                                   std::span<float> copy);

  // Only while no other thread is in here.

  /// All values, rows and frozen parameters too.
  void read_all(std::span<float> copy) const;
  /// Each of the rule's slots under its name, and "updates". The values are their owner's to save.
  void visit_state(StateVisitor& visitor);

 private:
  /// Of one dense parameter; small enough that all of it stays in the first-level cache between reading and writing.
  struct Piece {
    Range range;
    const ParameterEntry* parameter;
  };
  double norm(const SparseGradient& gradient) const;
  bool apply_dense(const Piece& piece, std::span<const float> gradient, float scale, const UpdateOptions& options,
                   const UpdateStep& step, std::span<float> copy);
  bool apply_rows(const TouchedRows& touched, std::span<const float> gradient, float scale,
                  const UpdateOptions& options, const UpdateStep& step);

  const ParameterTable& table_;
  const UpdateRule& rule_;
  std::vector<Piece> pieces_;
  const std::span<float> values_;
  std::vector<Buffer> slots_;
  alignas(64) std::atomic<std::uint64_t> updates_ = 0;  ///< apart from what all threads read all the time
};

}  // namespace distbelief
