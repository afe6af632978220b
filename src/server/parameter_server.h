#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "params/float_run.h"
#include "params/lbfgs/range_vectors.h"
#include "params/parameter_shard.h"
#include "server/block_map.h"
#include "server/wire.h"

namespace distbelief {

/// A lease as a server's saved state has it.
struct SavedLease {
  static constexpr std::uint64_t kDone = ~std::uint64_t{0};
  std::uint64_t id = 0;
  SampleRun samples = {};
  std::uint64_t next_push = 0;  ///< the first that some block lacks; kDone: none can
};
struct SavedLeases {
  std::uint64_t low_water = 0;  ///< all leases below are done, here
  std::vector<SavedLease> leases = {};
};
/// Of what ParameterServer::save() gave. Throws FileError, naming `source`.
SavedLeases saved_leases(std::string_view state, const std::string& source);
/// Sees a block, with its vectors if it has some, whose state may be changed.
using BlockVisit = std::function<void(ParameterShard& block, RangeVectors* vectors)>;
/// Shows the blocks of what save() gave, one after the other, whatever blocks the servers of now have. The server had
/// this rule, and kept vectors or not. Throws FileError, naming `source`.
void for_each_saved_block(std::string_view state, const std::string& source, const ParameterTable& table,
                          const UpdateRule& rule, bool keeps_vectors, const BlockVisit& visit);

/// The blocks that one server owns: values, optimizer state and which pushes have entered them. Knows no links: a
/// ServerPort stands between it and the clients. Thread-safe: pushes and fetches of many clients run at once, and meet
/// only where they touch the same block, for the time of one block's update.
class ParameterServer {
 public:
  struct Options {
    /// What is done with a push after `pushes` others entered its block, while `absent` clients have nothing to push or
    /// are fenced, less those that came since the beginning. Thread-safe.
    std::function<UpdateOptions(std::uint64_t pushes, int absent)> update;
    /// A push to a block that has seen more updates since is refused whole. Pushes then enter one after the other.
    std::optional<std::uint64_t> max_staleness = {};
    /// No rule is applied to what is optimized: pushes are added up as kGradient of the vectors, see run_vectors().
    bool keeps_vectors = false;
  };
  /// `table`, `map` and `rule` are borrowed. `owned` are numbers of blocks, ascending; `values` is the whole space, of
  /// which the owned blocks are copied.
  ParameterServer(const ParameterTable& table, const BlockMap& map, const std::vector<int>& owned,
                  const UpdateRule& rule, std::span<const float> values, Options options);

  std::size_t blocks() const { return blocks_.size(); }
  /// Floats of all owned blocks together.
  std::size_t floats() const { return floats_; }

  /// Units that entered the first block; 0 when there is none.
  std::uint64_t pushes() const { return blocks_.empty() ? 0 : blocks_.front().shard->pushes(); }

  /// Applies one push to every block, once however often it comes. `seen` has a version for each block, `gradient` the
  /// sums for all of them, one after the other.
  ReplyHead push(const RequestHead& head, std::span<const std::uint64_t> seen, std::span<const float> gradient);
  /// The same with a gradient that is 0 outside of runs, whose sums are given one after the other. It enters every
  /// block, also those that have no run.
  ReplyHead push(const RequestHead& head, std::span<const std::uint64_t> seen, std::span<const FloatRun> runs,
                 std::span<const float> gradient);
  /// How many floats these runs are; nothing, unless they ascend and each is inside one owned block.
  std::optional<std::size_t> floats_of(std::span<const FloatRun> runs) const;

  /// Writes the version of each block into `versions`, and the values of those that are newer than `have` one after the
  /// other into `values`, which has room for all. Returns how many floats that are. Each block's values are of one
  /// version. A version of have that is kNothing makes any version newer.
  static constexpr std::uint64_t kNothing = ~std::uint64_t{0};
  std::size_t read(std::span<const std::uint64_t> have, std::span<std::uint64_t> versions,
                   std::span<float> values) const;
  /// The same for all values of these runs, whatever the versions.
  std::size_t read(std::span<const FloatRun> runs, std::span<std::uint64_t> versions, std::span<float> values) const;

  /// Carries orders out on the vectors of all owned blocks, values among them, and tells what the dot products are
  /// there. Before that, pushes of leases below `low_water` count as taken, so that none of them comes after.
  void run_vectors(std::span<const VectorOrder> orders, std::uint64_t low_water, std::span<double> dots);

  /// Whether every block is newer than what the client has; at the end of training it is.
  bool newer_than(std::span<const std::uint64_t> have);

  /// Makes updates of what blocks have gathered, however little. Whether all values are finite.
  [[nodiscard]] bool flush();
  /// The same where blocks have gathered as much as Options::update now asks for. After it asks for less.
  [[nodiscard]] bool flush_full();
  /// This client pushes nothing until it pushes again. Whether all values are finite, as with flush_full().
  [[nodiscard]] bool idle(std::uint64_t incarnation);
  /// Multiplies all rates from now on.
  void slow_down(float factor);
  float rate_factor() const { return rate_factor_; }

  /// Before anybody pushes: all values, in the order of the blocks.
  void set_values(std::span<const float> values);

  /// Likewise.
  void visit_blocks(const BlockVisit& visit) const;

  /// The whole state as bytes: blocks, each of one moment, and leases. So that a set of such states, of servers that
  /// went on meanwhile, can be continued from, leases that are done are named too from mark() on to the next save.
  void mark();
  /// Nothing when some of the numbers are not finite: nobody wants to go on from there.
  std::optional<std::string> save();
  /// Throws FileError, naming `source`. Nobody pushes meanwhile.
  void restore(std::string_view state, const std::string& source);
  /// All that there is, of one moment, which become() of a server of the same blocks and options takes over. Nobody
  /// changes anything meanwhile.
  std::string copy();
  /// Throws FileError, naming `source`.
  void become(std::string_view state, const std::string& source);
  /// The same in pieces, for who is told to: `out` is filled as far as the state goes.
  ReplyHead save_piece(std::uint64_t offset, std::span<std::byte> out);
  /// False: the state is damaged, or not of this server.
  bool restore_piece(std::uint64_t offset, std::uint64_t total, std::span<const std::byte> piece);

  /// One more worker is there, that was not at the beginning: updates may be of more pushes. Once, however often it is
  /// said.
  void admit(std::uint64_t incarnation);
  /// Takes nothing more from this incarnation. When it returns, no push of it is under way. Updates need not wait for
  /// it any more: see flush_full().
  void fence(std::uint64_t incarnation);
  /// Takes nothing more from anybody: who pushes is told that training is over. Reading goes on.
  void end();
  /// Of this lease every owned block has the pushes below this one.
  std::uint64_t next_push(std::uint64_t lease) const;
  /// Leases that pushes came from and that are not known to be done, with next_push().
  std::vector<PushId> open_leases() const;
  /// The same with their samples.
  SavedLeases leases() const;

 private:
  struct Block {
    Range range;
    std::size_t place = 0;  ///< of its first float among those of all owned blocks
    Buffer values;
    std::unique_ptr<ParameterShard> shard;
    std::unique_ptr<RangeVectors> vectors;  ///< if it has some; used only while the shard lets nobody else in

    std::size_t size() const { return static_cast<std::size_t>(range.size()); }
    std::size_t end_place() const { return place + size(); }
    /// Values and vectors are of one moment only while nobody orders anything. `all`: the gradient too that is being
    /// added up.
    void visit_state(StateVisitor& visitor, bool all = false) const;
  };
  /// Gives a block its part of a push.
  using ApplyToBlock = std::function<UpdateReport(const Block&, const UpdateOptions&, Version seen)>;
  /// Takes from `runs` those that are in the block, which are the first.
  static FloatRuns take_runs_of(const Block& block, std::span<const FloatRun>& runs);

  void visit_all(StateVisitor& visitor);
  /// Pushes of leases below are done.
  void raise_low_water_locked(std::uint64_t low_water);
  bool is_late(const RequestHead& head, std::span<const std::uint64_t> seen) const;
  ReplyHead push(const RequestHead& head, std::span<const std::uint64_t> seen, const ApplyToBlock& apply_to_block);
  ReplyHead apply(const RequestHead& head, std::span<const std::uint64_t> seen, const ApplyToBlock& apply_to_block);
  UpdateOptions options_of(const ParameterShard& shard, int absent) const;
  int absent();
  std::unique_lock<std::mutex> enter() const;

  const Options options_;
  std::vector<Block> blocks_;
  std::size_t floats_ = 0;
  std::atomic<float> rate_factor_ = 1;
  /// With a bound on staleness: held by each push, by who looks at what is gathered, and by who reads, so that all
  /// blocks are at the same update.
  mutable std::mutex entering_;

  std::mutex pushes_mutex_;
  std::condition_variable pushed_;
  std::multiset<std::uint64_t> pushing_;  // guarded by pushes_mutex_: incarnations whose pushes are being applied
  std::set<std::uint64_t> fenced_;        // guarded by pushes_mutex_
  std::set<std::uint64_t> idle_;          // guarded by pushes_mutex_
  std::set<std::uint64_t> admitted_;      // guarded by pushes_mutex_
  bool over_ = false;                     // guarded by pushes_mutex_
  mutable std::mutex leases_mutex_;
  std::map<std::uint64_t, SampleRun> leases_;  // guarded by leases_mutex_, as all below: seen, from low_water_ on
  std::uint64_t low_water_ = 0;
  bool marked_ = false;
  std::map<std::uint64_t, SampleRun> done_;  // since the mark

  std::mutex pieces_mutex_;
  std::string saved_;     // guarded by pieces_mutex_: what is told in pieces
  std::string restored_;  // guarded by pieces_mutex_: the pieces so far
};

}  // namespace distbelief
