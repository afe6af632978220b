#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
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
/// The listener can serve the next view. Who dies meanwhile is waited for until `given_up`, which is asked all the
/// time, says that it is not to be: the fabric has no link to it, and what is posted to it ends with peer_lost.
///
/// The fabric has no thread: bytes move in post, progress() and wait(), which looks for a few microseconds, giving way
/// to other threads, and then sleeps until something comes. A peer that ends or closes is lost with "closed the
/// connection"; one that is silent is not, which is for heartbeats to find out (see Fabric::lose).
///
/// Throws InputError for TLS files that cannot be used.
SocketFabricResult connect_socket_fabric(Rank rank, std::span<const Address> addresses, SocketListener& listener,
                                         const SocketFabricOptions& options, Clock::time_point deadline,
                                         const std::function<bool(Rank)>& given_up = {});

/// A fabric that gets links to ranks that came later, over sockets, whatever the first ones talk over.
///
/// As long as nobody came, it does what the one it stands around does. With late peers a wait looks at both kinds of
/// links, again and again.
class GrowingFabric : public Fabric {
 public:
  struct [[nodiscard]] Grown {
    bool ok = true;
    std::uint32_t view = 0;  ///< the newest that somebody who was dialled is in
    Rank culprit = {};       ///< these two: without whom it cannot go on, and why
    std::string reason = {};
  };
  /// Gets a link to each of these ranks to which there is none yet; each of them does the same. `view`: in which this
  /// rank is. Waits until all are there, but for those that are given up, or the deadline. Between exchanges only.
  virtual Grown grow(const std::map<int, Address>& peers, std::uint32_t view, const std::function<bool(Rank)>& given_up,
                     Clock::time_point deadline) = 0;

  /// Connections that are no links yet.
  struct Met {
    virtual ~Met() = default;
  };
  /// The same in two parts, for a fabric that is in use meanwhile. meet() waits, on a thread of its own, and touches
  /// nothing that others do; to none of these ranks was there ever a link. What it gives becomes links with adopt(), on
  /// the thread that uses the fabric, at once.
  virtual std::unique_ptr<Met> meet(const std::map<int, Address>& peers, std::uint32_t view,
                                    const std::function<bool(Rank)>& given_up, Clock::time_point deadline) = 0;
  virtual Grown adopt(std::unique_ptr<Met> met) = 0;
};

/// `first`: the links between the ranks that began together, 0 … first->size() - 1; none for a rank that came later.
/// `listener` and `options` are for late ones.
std::unique_ptr<GrowingFabric> make_growing_fabric(Rank rank, std::unique_ptr<Fabric> first,
                                                   std::unique_ptr<SocketListener> listener,
                                                   const SocketFabricOptions& options);

}  // namespace distbelief
