#pragma once

#include <optional>

namespace distbelief {

/// What a link between two processes of this machine can do.
struct LinkSpeed {
  double latency = 0;    ///< seconds until a small message is there
  double bandwidth = 0;  ///< bytes a second that each sends while it receives as many
};

/// Sends messages to and fro between two threads over a local socket, for some milliseconds. Nothing when no socket can
/// be had.
std::optional<LinkSpeed> probe_local_link();

}  // namespace distbelief
