#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "transport/fabric.h"

namespace distbelief {

/// Requests that we have given up and MPI has not: they are tested now and then until it is done with them too. One
/// thread.
class MpiGraveyard {
 public:
  /// Of a message in memory of our own, which is kept as long as MPI may use it.
  void bury(MPI_Request request, Rank peer, std::unique_ptr<std::byte[]> memory);
  /// Of a message in the caller's memory, which MPI may yet write to or read from.
  void bury_dangerous(MPI_Request request, const Transfer& transfer);
  /// Tests some of them.
  void look(std::size_t at_most = 8);
  void look_at_all() { look(buried_.size()); }
  bool empty() const { return buried_.empty(); }
  /// The peer said that it never began to receive this send, and never will.
  void mark_harmless(Rank peer, Tag tag);
  bool is_dangerous(Rank peer, Tag tag) const;
  /// With whom there are messages in callers' memory.
  std::vector<Rank> dangerous_peers() const;
  /// Forgets all without freeing memory that MPI may use until the process ends.
  void leave_to_mpi();

 private:
  struct Buried {
    MPI_Request request = MPI_REQUEST_NULL;
    Rank peer = {};
    Tag tag = {};
    bool dangerous = false;
    bool sends = false;
    std::unique_ptr<std::byte[]> memory = {};
  };
  std::vector<Buried> buried_;
  std::size_t next_ = 0;
};

}  // namespace distbelief
