#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "transport/address.h"
#include "transport/fabric.h"
#include "transport/socket/socket_fabric.h"
#include "transport/socket/socket_listener.h"
#include "transport/socket/stream.h"

namespace distbelief {

/// A connection to every other rank on which both ends have proven that they belong to the job, or who is to blame.
struct [[nodiscard]] ConnectedStreams {
  std::vector<std::unique_ptr<Stream>> streams;  ///< by rank, none at one's own; empty on failure
  Rank culprit = {};
  std::string reason = {};
};

/// Dials the lower ranks and is dialled by the higher ones, all at the same time.
///
/// Who dials sends a hello: a frame with the view as its epoch, and job, ranks and token in it. It is answered by a
/// welcome with the same contents turned round, or by a refusal with the reason as text and the refusing end's view.
/// Whoever is refused by a process of an earlier view tries again: that process will get there.
ConnectedStreams connect_streams(Rank self, std::span<const Address> addresses, SocketListener& listener,
                                 const SocketFabricOptions& options, Clock::time_point deadline);

}  // namespace distbelief
