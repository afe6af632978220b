#pragma once

#include <memory>
#include <vector>

#include "transport/fabric.h"

namespace distbelief {

/// Ranks that are threads of one process: a message is one copy from the sender's memory into the receiver's. Element i
/// is rank i's; each may be used by another thread, and destroyed at any time: the others then have lost that peer.
std::vector<std::unique_ptr<Fabric>> make_local_fabrics(int ranks);

}  // namespace distbelief
