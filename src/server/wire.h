#pragma once

#include <cstdint>
#include <type_traits>

#include "params/float_run.h"
#include "params/lbfgs/vector_space.h"
#include "params/parameter_shard.h"
#include "transport/fabric.h"

// What clients and servers say to each other. Each client has two channels to a server, one for what changes parameters
// and one for what only reads them, so that a fetch need not wait for the push before it. A channel is strictly in
// turns: a request, then its reply, each a head of fixed size and, when the head says so, a body. So a server never
// holds more than one request of a client and channel: that bounds its memory, and is what a client waits for when a
// server is slow.
//
// Bodies are arrays, one after the other, over the blocks that the server owns, in the order of the BlockMap:
//   push     request: the version of each block that the gradient was computed from, then the gradients
//   fetch    request: the version of each block that the client has
//   values   reply to both: the version of each block, then the values of those that are newer than what the client has
//   report   request: what the client cannot go on with, in words; mostly nothing
//   work     reply: what the client is to compute, as a Work; nothing: there is nothing to do
// The rest are orders of the client that leads:
//   set      request: versions that nobody reads, then values
//   save     reply: a piece of the server's state
//   restore  request: a piece of it
//   vectors  request: VectorOrders for what the server owns; reply: a double for each dot product
// A push and a fetch may be of runs of floats only, for sparse batches; places are counted over all floats of the
// server, block after block. Runs ascend, and each is inside one block. The body is then no longer than that of a whole
// push:
//   push     request: versions as above, runs, then their gradients; elsewhere the gradient is 0
//   fetch    request: versions as above, runs
//   values   reply to a fetch: the version of each block, then the values of the runs, newer or not
// Both ends run the same program on the same kind of machine (the handshake sees to it), so numbers travel as they are.

namespace distbelief {

enum class Channel : std::uint32_t { change, read };

/// A process may have two clients: of the worker, and of the leader that lives beside it. Each counts its own requests,
/// so that servers know them by different incarnations.
enum class ClientRole : std::uint32_t { worker, leader };
inline std::uint64_t incarnation_of(ClientRole role, std::uint64_t process) {
  constexpr std::uint64_t kLeader = std::uint64_t{1} << 63U;
  return role == ClientRole::leader ? process | kLeader : process;
}

/// Samples of a push unit or of a lease: a contiguous piece of the order of an epoch.
struct SampleRun {
  std::int64_t epoch = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// What became of a push unit that is in every block of every server.
struct UnitReport {
  PushId id = {};
  SampleRun samples = {};  ///< none: there is nothing to report
  double loss = 0;         ///< sums over the samples; NaN: who computed them is dead
  std::int64_t correct = 0;
  double staleness = 0;  ///< mean over blocks
  std::uint64_t staleness_most = 0;
  /// Instead: a server refused it, so that what was computed is dropped, and the samples are for whoever leases them.
  std::uint64_t late = 0;
};

/// What a worker is to compute for an objective that is evaluated over many portions of samples.
struct Work {
  std::uint64_t evaluation = 0;  ///< parameters are those of this one
  std::uint64_t unit = 0;        ///< as the lease of its push; 0: there is nothing more to come
  SampleRun samples = {};
  std::uint64_t low_water = 0;  ///< units below are of evaluations that are over
  double scale = 0;             ///< what sums are multiplied with for the mean of the whole evaluation
};

struct RequestHead {
  enum class Kind : std::uint32_t {
    push,
    fetch,
    report,
    work,
    leave,      ///< this client's worker has ended, and says nothing more
    idle,       ///< this client's worker has nothing to push until it pushes again: an update need not wait for it
    flush,      ///< make updates of what is gathered
    end,        ///< training is over: tell so whoever pushes, and let nobody wait
    slow_down,  ///< multiply all rates from now on with `scale`
    set,        ///< begin with these values
    mark,       ///< remember all leases from now to the next save
    save,       ///< at offset 0: keep what the state is now; tell it from `offset` on, as much as a reply holds
    restore,    ///< what is at `offset` of `total` bytes; when all is there it becomes the state
    vectors,    ///< pushes of leases below low_water count as taken from now on; then these orders
    // These are not for clients: a server orders them itself, and tells its backup.
    fence,  ///< take nothing more from `incarnation`
    admit,  ///< `incarnation` is one more worker
    note,   ///< keep this body, for whoever leads next
    books,  ///< what the books of who leads were before anything was heard: those of a run that goes on
    copy,   ///< to a new backup: what is at `offset` of `total` bytes of all that there is
    whole,  ///< to a new backup: it has now all that was acknowledged, and what comes is acknowledged when it has it
    bye,    ///< to a backup: another is in its place, and nothing more comes
  };
  Kind kind = Kind::push;
  std::uint32_t wants_values = 0;  ///< push: the reply brings the values after it
  std::uint64_t incarnation = 0;   ///< of the process that asks
  PushId push = {};
  SampleRun samples = {};
  float scale = 0;  ///< push: what the sums are multiplied with: one by the number of samples
  /// fetch: the reply comes when every block is newer than what the client has; work: when there is something to do
  std::uint32_t awaits_newer = 0;
  std::uint64_t low_water = 0;  ///< all leases below are done
  SampleRun lease = {};         ///< push: that the unit is of
  UnitReport done = {};         ///< push and report: of a unit before
  std::uint64_t offset = 0;
  std::uint64_t total = 0;
  static constexpr std::uint64_t kWhole = ~std::uint64_t{0};
  std::uint64_t runs = kWhole;  ///< push and fetch: of so many runs; or of all that the server owns
  /// Of a change, counted by its client from 1: one that comes again, to whoever holds the blocks then, is answered as
  /// it was the first time. 0: it will not come again.
  std::uint64_t number = 0;
  std::uint64_t body_bytes = 0;

  bool in_runs() const { return runs != kWhole; }
};

struct ReplyHead {
  enum class Status : std::uint32_t {
    done,
    duplicate,  ///< every block had this push already
    late,       ///< the gradient is of values that are older than allowed, and nothing was done
    early,      ///< pushes of its lease that come before are missing: a bug of the client
    nonfinite,  ///< done, and some of the values are NaN or infinite now
    fenced,     ///< this incarnation was given up: nothing more is taken from it
    over,       ///< training has ended, and nothing was done
    damaged,    ///< what was to be restored is not the state of this server
    moved,      ///< another server answers for these blocks, or will soon, and nothing was done
  };
  static constexpr std::size_t kStatuses = 9;
  Status status = Status::done;
  float rate_factor = 1;            ///< what orders have made of all rates
  std::uint64_t staleness_sum = 0;  ///< over the blocks that this push changed
  std::uint64_t staleness_most = 0;
  std::uint64_t blocks = 0;         ///< that this push changed
  std::uint64_t total = 0;          ///< save: bytes of the whole
  std::uint64_t pushed_bytes = 0;   ///< these two: what came over links to this server as pushes so far, and
  std::uint64_t fetched_bytes = 0;  ///< went as values
  std::uint64_t body_bytes = 0;
};

/// What a primary tells its backup: a change, and its place in the order of all. Several may be on their way; the
/// backup acknowledges each when it has done it.
struct ReplicaHead {
  std::uint64_t position = 0;
  RequestHead request = {};
};
struct ReplicaAck {
  std::uint64_t position = 0;
};
constexpr std::uint32_t kReplicaSlots = 2;  ///< changes on their way to a backup

static_assert(std::is_trivially_copyable_v<ReplicaHead> && std::is_trivially_copyable_v<ReplicaAck> &&
              std::is_trivially_copyable_v<RequestHead> && std::is_trivially_copyable_v<ReplyHead> &&
              std::is_trivially_copyable_v<FloatRun> && std::is_trivially_copyable_v<Work> &&
              std::is_trivially_copyable_v<VectorOrder>);

/// Bytes of the words in a report.
constexpr std::size_t kMostWords = 1024;

/// Views that tags can tell from each other. Where a process answers for several servers of the start, or for several
/// parts of a network, each has a view of its own.
constexpr std::uint32_t kViews = 64;
inline std::uint32_t view_of_shelf(std::uint32_t view, std::size_t shelf) {
  return (view + static_cast<std::uint32_t>(shelf)) % kViews;
}

/// Turns of a channel are counted from 0, on both ends. Two processes may be servers of each other, so that requests
/// and replies need tags of their own. Groups of the same view have other epochs.
enum class Part : std::uint32_t { request_head, request_body, reply_head, reply_body };
inline Tag numbered_channel_tag(std::uint32_t view, std::uint32_t number, std::uint32_t turn, Part part) {
  constexpr std::uint32_t kServerEpoch = 0x80;
  return {view ^ (kServerEpoch + (number << 6U)), 4 * turn + static_cast<std::uint32_t>(part)};
}
inline Tag channel_tag(std::uint32_t view, ClientRole role, Channel channel, std::uint32_t turn, Part part) {
  return numbered_channel_tag(view, 2 * static_cast<std::uint32_t>(role) + static_cast<std::uint32_t>(channel), turn,
                              part);
}
/// Between the two holders of a shelf.
inline Tag replica_tag(std::uint32_t view, std::uint32_t turn, Part part) {
  return numbered_channel_tag(view, 4, turn, part);
}

}  // namespace distbelief
