#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "transport/fabric.h"

namespace distbelief {

/// "Open MPI" or "MPICH", whichever this program was built with; empty when it has no MPI.
std::string_view mpi_of_this_build();

/// MPI in this process: from MPI_Init_thread in the constructor to finish(). There is at most one in a process's life,
/// as MPI cannot be started twice. A process that no launcher started is a job of one rank.
///
/// One thread at a time makes all MPI calls; better always the same, the one that constructs this, as its timers are
/// made finer so that waiting naps of 25 µs are no longer than that. MPI errors are returned, not fatal. SIGUSR1, which
/// MPICH's launcher sends to the others when a process dies, does nothing. MPI_Abort is never called.
class MpiWorld {
 public:
  /// Starts MPI and meets the other ranks. MPI_Init itself can wait for ever when a rank dies in it: have a launcher
  /// with a deadline. Throws Error when this build has no MPI, when the library is not safe for threads, or when not
  /// all ranks came by the deadline.
  explicit MpiWorld(Clock::time_point deadline);
  ~MpiWorld();  ///< does not call MPI_Finalize: see finish()
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  Rank rank() const;
  int size() const;
  /// "Open MPI 4.1.4", "MPICH 4.0.2".
  const std::string& library() const;

  /// The rank ran on this host and its process is certainly gone. False also when that cannot be known from here.
  bool is_certainly_dead(Rank rank) const;

  /// MPI_Finalize would hang from now on: a peer was lost, or a message could not be ended. Thread-safe.
  void leave_without_finalize();

  /// Ends MPI; all ranks call it, after their fabrics are destroyed. True: done, return from main(). False: a peer was
  /// lost or did not come here by the deadline, so MPI_Finalize, which would not return, was left out; leave with
  /// _exit(), as MPI's own exit handlers may hang too.
  [[nodiscard]] bool finish(Clock::time_point deadline);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace distbelief
