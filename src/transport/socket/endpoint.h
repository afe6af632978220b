#pragma once

#include <string>

#include "base/clock.h"
#include "transport/address.h"
#include "transport/socket/file_descriptor.h"

namespace distbelief {

struct [[nodiscard]] OpenedConnection {
  FileDescriptor fd;
  std::string reason = {};  ///< for people, when there is no fd: "Connection refused"
  bool refused = false;     ///< the machine is there, but nobody listens
};

/// Dials and waits until the connection stands or the deadline. A host's name is looked up by the system, which has
/// time limits of its own.
OpenedConnection open_connection(const Address& address, Clock::time_point deadline);

/// Waits until the socket has one of the events (POLLIN, POLLOUT), an error or the deadline. False at the deadline.
[[nodiscard]] bool wait_for_events(int fd, short events, Clock::time_point deadline);

/// What to call the other end in messages: "10.0.0.7:41234", or "pid 4711" of a unix socket.
std::string peer_text(int fd);

/// strerror, thread-safe.
std::string system_reason(int error);

}  // namespace distbelief
