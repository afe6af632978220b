#pragma once

#include <sys/types.h>

#include "transport/address.h"
#include "transport/socket/file_descriptor.h"

namespace distbelief {

/// A socket that listens. The file of a unix socket is made readable to its owner only, and goes away with this object.
/// All sockets here are non-blocking and are not inherited by programs that are started.
class SocketListener {
 public:
  /// Throws InputError that names the address and the reason. A unix socket's file that a dead server left is replaced;
  /// one on which a server listens is refused, and so is a file that is no socket.
  explicit SocketListener(const Address& address);
  ~SocketListener();
  SocketListener(const SocketListener&) = delete;
  SocketListener& operator=(const SocketListener&) = delete;

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

}  // namespace distbelief
