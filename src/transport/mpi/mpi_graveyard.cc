#ifdef DISTBELIEF_HAS_MPI

#include "transport/mpi/mpi_graveyard.h"

#include <algorithm>
#include <utility>

namespace distbelief {

void MpiGraveyard::bury(MPI_Request request, Rank peer, std::unique_ptr<std::byte[]> memory) {
  buried_.push_back({request, peer, {}, false, false, std::move(memory)});
}

void MpiGraveyard::bury_dangerous(MPI_Request request, const Transfer& transfer) {
  buried_.push_back({request, transfer.peer, transfer.tag, true, transfer.sends, nullptr});
}

void MpiGraveyard::mark_harmless(Rank peer, Tag tag) {
  for (Buried& buried : buried_) {
    if (buried.sends && buried.peer == peer && buried.tag == tag) {
      buried.dangerous = false;
    }
  }
}

bool MpiGraveyard::is_dangerous(Rank peer, Tag tag) const {
  return std::ranges::any_of(
      buried_, [&](const Buried& buried) { return buried.dangerous && buried.peer == peer && buried.tag == tag; });
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
    if (buried.dangerous) {
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
