#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "cluster/lease_table.h"
#include "data/sampler.h"
#include "graph/loss.h"
#include "metrics/counters.h"
#include "server/parameter_server.h"
#include "server/wire.h"
#include "train/run_progress.h"

namespace distbelief {

/// How old the values were that gradients were computed from, in updates: of units, by the mean over blocks, rounded.
struct StalenessCounts {
  static constexpr std::size_t kMost = 64;  ///< the last counts all from here on
  std::array<std::uint64_t, kMost + 1> units = {};
  double sum = 0;
  std::uint64_t count = 0;
  std::uint64_t most = 0;

  double mean() const { return count > 0 ? sum / static_cast<double>(count) : 0; }
};

/// What the leader of a job with parameter servers knows of its samples: which were handed out, which are in every
/// block. Workers go through epochs at their own speed, so several epochs are open at a time; an epoch closes when all
/// its samples are applied: what is dropped is leased again. Thread-safe.
class ServedBooks {
 public:
  struct Plan {
    std::int64_t first_epoch = 0;
    std::int64_t epochs = 0;        ///< up to and without this one
    std::int64_t unit_samples = 0;  ///< less where a lease ends
    std::uint64_t seed = 0;         ///< of the order of samples
  };
  /// `sampler` is borrowed.
  ServedBooks(const Sampler& sampler, const Plan& plan);

  /// What a worker said with a push or a report: see ServerPort.
  void heard(const RequestHead& request, const ReplyHead& reply, std::string_view words);

  struct ClosedEpoch {
    std::int64_t epoch = 0;
    LossSums sums;
    Clock::time_point at = Clock::now();  ///< when these books knew of it
  };
  struct News {
    LossSums sums;                         ///< of the samples that were applied since the last call
    std::uint64_t units = 0;               ///< that were applied in all
    std::uint64_t samples = 0;             ///< applied in all
    std::vector<ClosedEpoch> closed = {};  ///< since the last call, in order
    std::string trouble = {};              ///< why a worker could not go on; the first
  };
  News take();
  /// The first of the closed epochs has been evaluated, and is not told again.
  void evaluated();

  /// Of books that heard the same as those of a leader which is lost, and evaluated so many epochs: take() tells of
  /// those after.
  void take_over(std::int64_t evaluated_epochs);

  /// All of it as bytes, to go on from.
  std::string save();
  /// What saved books are of, to be compared before a run goes on from them.
  struct Head {
    std::int64_t unit_samples = 0;
    std::int64_t samples = 0;  ///< of an epoch
    std::uint64_t seed = 0;
    std::int64_t epochs_begun = 0;
  };
  static Head head_of(std::string_view saved, const std::string& file);
  /// Throws FileError, naming `file`, when they are damaged, and InputError when they are of other samples or units, or
  /// have begun an epoch that is not to come any more.
  void restore(std::string_view saved, const std::string& file);
  /// For who keeps the same books from now on: what save() gives, and who has ended. become() throws as restore().
  std::string copy();
  void become(std::string_view copy);
  /// After restore(): takes in what the servers' states have that was not reported yet, and says what is still to be
  /// leased. Their states are of later moments than the books: see ParameterServer::mark().
  LeaseTable::Options go_on(const std::vector<SavedLeases>& servers) { return go_on(servers, {}, 1); }
  /// The same while training goes on: leases that are `held` by workers that live are theirs to report. New ones get
  /// numbers from `first_lease` on.
  LeaseTable::Options go_on(const std::vector<SavedLeases>& servers, const std::vector<Lease>& held,
                            std::uint64_t first_lease);

  /// What is done, for a run that goes on in another way; after go_on(), of what servers have too.
  RunProgress progress() const;
  /// Instead of restore() and go_on(), before anything else: begins where a run of any kind stood after so many units.
  /// What it dropped is leased again.
  LeaseTable::Options begin_at(const RunProgress& progress, std::uint64_t units);

  SampleAudit total() const;
  /// What is open is closed: what was handed out and not applied is lost.
  void close_all();
  StalenessCounts staleness() const;
  /// How many of these workers, by incarnation, have not said that they have ended.
  int staying(const std::vector<std::uint64_t>& workers) const;
  /// Sums of the epoch that is open and lowest.
  LossSums open_sums() const;

 private:
  struct Epoch {
    explicit Epoch(std::uint64_t samples) : ledger(samples) {}
    SampleLedger ledger;
    LossSums sums;
  };
  /// What was reported of a lease.
  struct Reported {
    std::int64_t epoch = 0;
    std::uint64_t next_unit = 0;
  };
  Epoch& epoch_locked(std::int64_t number);
  std::span<const std::uint64_t> ids_of_locked(const SampleRun& samples);
  void apply_locked(const SampleRun& samples);
  void visit(StateVisitor& visitor);
  /// Samples that nobody has and that are not applied, as leases of their own, and where the rest begins.
  void lease_gaps_locked(LeaseTable::Options& plan, const std::vector<Lease>& held);
  void close_finished_locked();
  bool exist(const SampleRun& samples) const;

  const Sampler& sampler_;
  const Plan plan_;
  mutable std::mutex mutex_;
  std::int64_t next_epoch_;  // guarded by mutex_, as all below: the lowest open one
  std::map<std::int64_t, std::unique_ptr<Epoch>> open_;
  std::map<std::uint64_t, Reported> reported_;  // by lease
  std::vector<ClosedEpoch> unevaluated_;
  SampleAudit closed_;
  News news_;
  StalenessCounts staleness_;
  std::set<std::uint64_t> left_;  ///< workers that have ended
  std::vector<std::uint64_t> ids_;
};

}  // namespace distbelief
