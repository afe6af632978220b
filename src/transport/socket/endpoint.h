#pragma once

#include <sys/types.h>

#include <string>

#include "base/clock.h"
#include "transport/address.h"
#include "transport/socket/file_descriptor.h"

namespace distbelief {

/// A socket that listens. The file of a unix socket is made readable to its owner only, and goes away with this object.
/// All sockets here are non-blocking and are not inherited by programs that are started.
class ListeningSocket {
 public:
  /// Throws InputError that names the address and the reason. A unix socket's file that a dead server left is replaced;
  /// one on which a server listens is refused, and so is a file that is no socket.
  explicit ListeningSocket(const Address& address);
  ~ListeningSocket();
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;

  int fd() const { return fd_.get(); }
  /// With the port that the system chose.
  const Address& address() const { return address_; }

  struct Accepted {
    FileDescriptor fd;
    int error = 0;  ///< errno when there is none; EAGAIN when nobody waits
  };
  Accepted accept();

 private:
  void listen_on_tcp();
  void listen_on_path();
  [[noreturn]] void fail(int error) const;

  Address address_;
  FileDescriptor fd_;
  dev_t device_ = 0;  // of the unix socket's file: another's file of that name is not removed
  ino_t inode_ = 0;
};

struct [[nodiscard]] OpenedConnection {
  FileDescriptor fd;
  std::string reason = {};  ///< for people, when there is no fd: "Connection refused"
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
