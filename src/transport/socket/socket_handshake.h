#pragma once

#include <cstdint>
#include <functional>
#include <map>
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
  std::vector<std::unique_ptr<Stream>> streams;  ///< by rank, none at one's own and of those that were given up
  Rank culprit = {};                             ///< of a failure; else -1
  std::string reason = {};
};

/// Dials the lower ranks and is dialled by the higher ones, all at the same time.
///
/// Who dials sends a hello: a frame with the view as its epoch, and job, ranks and token in it. It is answered by a
/// welcome with the same contents turned round, or by a refusal with the reason as text and the refusing end's view.
/// Whoever is refused by a process of an earlier view tries again: that process will get there. So does who does not
/// get through to the other's machine. Where nobody listens, a connection ends, or somebody else answers, that peer may
/// have died: with `given_up`, which is asked again and again, it is tried again for 15 s; without, it is a failure.
ConnectedStreams connect_streams(Rank self, std::span<const Address> addresses, SocketListener& listener,
                                 const SocketFabricOptions& options, const std::function<bool(Rank)>& given_up,
                                 Clock::time_point deadline);

/// Connections to some ranks, by rank. Who is missing was given up, or is to blame.
struct [[nodiscard]] LateStreams {
  std::map<int, std::unique_ptr<Stream>> streams;
  std::uint32_t view = 0;  ///< the newest view that somebody who was dialled is in
  Rank culprit = {};       ///< of a failure; else -1
  std::string reason = {};
};

/// The same between processes of which some came later: with these peers only, all of which do this sooner or later.
/// Who is refused tries again too.
LateStreams connect_late_streams(Rank self, const std::map<int, Address>& peers, SocketListener& listener,
                                 const SocketFabricOptions& options, const std::function<bool(Rank)>& given_up,
                                 Clock::time_point deadline);

}  // namespace distbelief
