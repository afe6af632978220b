#include "transport/socket/stream.h"

#include <sys/socket.h>

#include <cerrno>

#include "transport/socket/endpoint.h"

namespace distbelief {
namespace {

class PlainStream : public Stream {
 public:
  using Stream::Stream;

  Moved handshake() override { return {}; }

  Moved read(std::span<const iovec> into) override {
    for (;;) {
      const ssize_t count = ::readv(fd(), into.data(), static_cast<int>(into.size()));
      if (count > 0) {
        return {Moved::State::moved, static_cast<std::size_t>(count)};
      }
      if (count == 0) {
        return {Moved::State::closed, 0, "closed the connection"};
      }
      if (errno != EINTR) {
        return failed(Moved::State::wants_read);
      }
    }
  }

  Moved write(std::span<const iovec> from) override {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(from.data());  // sendmsg() only reads it
    message.msg_iovlen = from.size();
    for (;;) {
      const ssize_t count = ::sendmsg(fd(), &message, MSG_NOSIGNAL);
      if (count >= 0) {
        return {Moved::State::moved, static_cast<std::size_t>(count)};
      }
      if (errno != EINTR) {
        return failed(Moved::State::wants_write);
      }
    }
  }

  void end_writing() override { ::shutdown(fd(), SHUT_WR); }

 private:
  static Moved failed(Moved::State when_blocked) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return {when_blocked};
    }
    return {Moved::State::closed, 0, errno == EPIPE ? "closed the connection" : system_reason(errno)};
  }
};

}  // namespace

std::unique_ptr<Stream> make_plain_stream(FileDescriptor fd) { return std::make_unique<PlainStream>(std::move(fd)); }

}  // namespace distbelief
