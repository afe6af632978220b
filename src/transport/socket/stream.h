#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "transport/socket/file_descriptor.h"

namespace distbelief {

/// How far a read or write came. `bytes` is meaningful for moved only, and then not 0.
struct [[nodiscard]] Moved {
  enum class State : std::uint8_t {
    moved,
    wants_read,   ///< goes on when the socket can be read; TLS may want that to write, too
    wants_write,  ///< goes on when the socket can be written
    closed,       ///< for good
  };
  State state = State::moved;
  std::size_t bytes = 0;
  std::string reason = {};  ///< of closed, for people: "closed the connection"
};

/// The bytes of a connected socket, plain or encrypted, without ever waiting. One thread.
class Stream {
 public:
  explicit Stream(FileDescriptor fd) : fd_(std::move(fd)) {}
  virtual ~Stream() = default;

  int fd() const { return fd_.get(); }

  /// What must happen before bytes can move; moved when it is done (with any number of bytes).
  virtual Moved handshake() = 0;
  /// Into the parts, in order. At least one part has a byte.
  virtual Moved read(std::span<const iovec> into) = 0;
  virtual Moved write(std::span<const iovec> from) = 0;
  /// Tells the other end that nothing more will be written.
  virtual void end_writing() = 0;

 private:
  FileDescriptor fd_;
};

std::unique_ptr<Stream> make_plain_stream(FileDescriptor fd);

}  // namespace distbelief
