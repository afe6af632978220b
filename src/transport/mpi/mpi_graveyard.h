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
  /// `endangers_caller`: MPI may yet write into memory that is not ours. `memory`: what it reads or writes, if it is.
  void bury(MPI_Request request, Rank peer, bool endangers_caller, std::unique_ptr<std::byte[]> memory = {});
  /// Tests some of them.
  void look(std::size_t at_most = 8);
  void look_at_all() { look(buried_.size()); }
  bool empty() const { return buried_.empty(); }
  /// The senders of receives that endanger their caller's memory.
  std::vector<Rank> dangerous_peers() const;
  /// Forgets all without freeing memory that MPI may use until the process ends.
  void leave_to_mpi();

 private:
  struct Buried {
    MPI_Request request = MPI_REQUEST_NULL;
    Rank peer = {};
    bool endangers_caller = false;
    std::unique_ptr<std::byte[]> memory = {};
  };
  std::vector<Buried> buried_;
  std::size_t next_ = 0;
};

}  // namespace distbelief
