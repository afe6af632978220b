#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/clock.h"
#include "transport/address.h"
#include "transport/fabric.h"
#include "transport/socket/socket_listener.h"
#include "transport/tls_options.h"

namespace distbelief {

struct SocketFabricOptions {
  std::string token = {};  ///< the job's secret; who does not have it is refused. At most 256 bytes. Never logged.
  std::string job = {};    ///< which job, at most 256 bytes; another job's processes are refused
  std::uint32_t view = 0;  ///< of the members that connect; processes of another view are refused
  std::optional<TlsOptions> tls = {};
  /// How many bytes of messages that nobody has posted are kept for each peer; then that peer has to wait. A message is
  /// received in another order than it was sent only within this bound.
  std::size_t most_early = std::size_t{64} << 20;
};

struct [[nodiscard]] SocketFabricResult {
  std::unique_ptr<Fabric> fabric;
  Rank culprit = {};        ///< without a fabric: who could not be reached
  std::string reason = {};  ///< and why, for people: "rank 2 (tcp:10.0.0.7:4000): Connection refused"
};

/// The data plane over sockets, one connection for each pair of ranks: TCP with payload checksums (CRC32C), or unix
/// sockets without. A rank opens its `listener` first and tells the others its address by another way; `addresses` has
/// one for each rank. All ranks then call this, each with its own number, and each returns when its connections stand,
/// or at the deadline, or when a peer cannot be reached at all. Nobody is harmed by strangers who connect meanwhile.
/// The listener can serve the next view.
///
/// The fabric has no thread: bytes move in post, progress() and wait(), which looks for a few microseconds, giving way
/// to other threads, and then sleeps until something comes. A peer that ends or closes is lost with "closed the
/// connection"; one that is silent is not, which is for heartbeats to find out (see Fabric::lose).
///
/// Throws InputError for TLS files that cannot be used.
SocketFabricResult connect_socket_fabric(Rank rank, std::span<const Address> addresses, SocketListener& listener,
                                         const SocketFabricOptions& options, Clock::time_point deadline);

}  // namespace distbelief
