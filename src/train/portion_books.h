#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "graph/loss.h"
#include "metrics/counters.h"
#include "server/portion_table.h"
#include "server/wire.h"

namespace distbelief {

/// What the leader of a Sandblaster run knows of the objective that is being evaluated: who computes which portions,
/// and the sums of those that are done. Thread-safe.
class PortionBooks {
 public:
  explicit PortionBooks(const PortionTable::Options& options) : table_(options) {}

  /// The next evaluation, over the first `samples` samples of the order, by so many workers at most. Nobody gets work
  /// of it before open(). What it returns is what servers must have heard by then: pushes of units below are over.
  std::uint64_t begin(std::int64_t samples, int workers);
  /// Workers get work from now on; those that wait must be told that there is some.
  void open();
  /// Training is over: so is told who asks for work.
  void end();

  /// For a ServerPort: what a worker that asks gets, and what one says.
  std::optional<Work> work(const RequestHead& request);
  void heard(const RequestHead& request, const ReplyHead& reply, std::string_view words);
  /// A worker, by incarnation, is gone: what it had goes to others, and it gets nothing more.
  void lose(std::uint64_t worker);

  struct Progress {
    bool done = false;
    LossSums sums;  ///< of what is done
  };
  /// Until the evaluation is done, or the deadline.
  Progress wait(Clock::time_point deadline);

  /// How many of these workers, by incarnation, have not said that they have ended.
  int staying(const std::vector<std::uint64_t>& workers) const;
  /// Who has, for who may lead next; the rest begins anew then. become() throws FileError when it is damaged.
  std::string copy() const;
  void become(std::string_view copy);

  /// Units from now on have at least this id; a run that goes on must not use one again.
  std::uint64_t next_id() const;
  void begin_ids(std::uint64_t first);
  /// The evaluation that began last; those of another leader are others.
  std::uint64_t evaluation() const;
  void set_evaluation(std::uint64_t last);
  PortionTable::Counts counts() const;
  /// Of a run that goes on they are those of the whole run: see PortionTable::settled_counts().
  PortionTable::Counts settled_counts() const;
  void set_counts(const PortionTable::Counts& counts);
  /// In samples, over all evaluations. What is out when all is over was dropped.
  SampleAudit audit() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  PortionTable table_;  // guarded by mutex_, as all below
  std::uint64_t evaluation_ = 0;
  bool open_ = false;
  bool over_ = false;
  LossSums sums_;
  std::set<std::uint64_t> lost_;  ///< workers
  std::set<std::uint64_t> left_;  ///< workers that have ended
};

}  // namespace distbelief
