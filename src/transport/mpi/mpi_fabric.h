#pragma once

#include <memory>
#include <string>

#include "transport/fabric.h"
#include "transport/mpi/mpi_world.h"

namespace distbelief {

/// Messages between the ranks of one MPI job, over MPI's point-to-point calls without waiting, which go through shared
/// memory or whatever network MPI drives.
///
/// MPI never tells that a peer died: lose() must be called by whoever learns it. Survivors go on where Open MPI uses
/// shared memory; its TCP ends a process whose peer vanished in the middle of a message, and MPICH mostly ends the job:
/// where they connect the hosts, sockets are the better way. wait() tests in a loop, yields the core for the first 100
/// µs and then naps, as a thread that spins starves its neighbours. Bytes move inside the calls of this class only, but
/// in any of them for all open transfers.
///
/// **Giving up.** MPI takes no message back, so each end sees to it that nothing of it comes to light.
/// - A receive that has met no message is simply forgotten. One that has is in the middle of being written, and MPI
///   cannot stop; so it is driven on, for up to 50 ms if the peer is lost and 1 s if not, even beyond a deadline. On
///   one host, where the receiver copies from the sender's memory (process_vm_readv), the copy is over before the call
///   that began it returns; it is only left open when the sender died before, and then nothing is ever written. Over a
///   network, or through shared memory in pieces, a peer that stopped in the middle may go on later: memory_unsafe().
/// - MPI may read the memory of a send that was given up long after, when the peer at last receives: so the peer is
///   told. If it has not begun to receive, it never will, and says so; that answer, or the end of the message, is
///   waited for, up to 250 ms: after that, memory_unsafe(). If it has begun, or small bytes have come, its receive ends
///   with timed_out ("gave the exchange up"). A tag whose transfer was given up is not used again between the two.
///
/// One fabric a world. One thread at a time, except lose() and end_epoch().
class MpiFabric : public Fabric {
 public:
  explicit MpiFabric(MpiWorld& world);  ///< `world` outlives it. Throws Error when this build has no MPI.
  ~MpiFabric() override;
  MpiFabric(const MpiFabric&) = delete;
  MpiFabric& operator=(const MpiFabric&) = delete;

  Rank rank() const override;
  int size() const override;
  Outcome wait(Transfer& transfer, Clock::time_point deadline) override;
  bool progress(Transfer& transfer) override;
  void cancel(Transfer& transfer) override;
  void lose(Rank peer, const std::string& reason) override;
  void end_epoch(std::uint32_t epoch, const std::string& reason) override;

  /// A transfer was given up that MPI may still write into or read from, because its peer has not answered and is not
  /// certainly dead: it is stopped, or behind a cut, or has not called its fabric since. As long as this is true,
  /// neither believe nor free memory that such a transfer had named: use other memory, or leave the process. It becomes
  /// false again when the peer goes on, or its process ends.
  bool memory_unsafe();

 protected:
  void post(Transfer& transfer) override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace distbelief
