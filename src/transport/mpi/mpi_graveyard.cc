#ifdef DISTBELIEF_HAS_MPI

#include "transport/mpi/mpi_graveyard.h"

#include <utility>

namespace distbelief {

void MpiGraveyard::bury(MPI_Request request, Rank peer, bool endangers_caller, std::unique_ptr<std::byte[]> memory) {
  buried_.push_back({request, peer, endangers_caller, std::move(memory)});
}

void MpiGraveyard::look(std::size_t at_most) {
  for (std::size_t i = 0; i < at_most && !buried_.empty(); ++i) {
    next_ = next_ < buried_.size() ? next_ : 0;
    Buried& buried = buried_[next_];
    int flag = 0;
    if (MPI_Test(&buried.request, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS || flag != 0) {
      std::swap(buried, buried_.back());
      buried_.pop_back();
    } else {
      ++next_;
    }
  }
}

std::vector<Rank> MpiGraveyard::dangerous_peers() const {
  std::vector<Rank> peers;
  for (const Buried& buried : buried_) {
    if (buried.endangers_caller) {
      peers.push_back(buried.peer);
    }
  }
  return peers;
}

void MpiGraveyard::leave_to_mpi() {
  for (Buried& buried : buried_) {
    [[maybe_unused]] const std::byte* const left = buried.memory.release();
  }
  buried_.clear();
}

}  // namespace distbelief

#endif
