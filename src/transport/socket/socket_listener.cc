#include "transport/socket/socket_listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>
#include <utility>

#include "base/error.h"
#include "transport/socket/endpoint.h"
#include "transport/socket/socket_address.h"

namespace distbelief {
namespace {

constexpr int kBacklog = 1024;

}  // namespace

SocketListener::SocketListener(const Address& address) : address_(address) {
  address.kind == Address::Kind::tcp ? listen_on_tcp() : listen_on_path();
}

SocketListener::~SocketListener() {
  struct stat facts {};
  if (inode_ != 0 && ::lstat(address_.path.c_str(), &facts) == 0 && facts.st_dev == device_ && facts.st_ino == inode_) {
    ::unlink(address_.path.c_str());
  }
}

void SocketListener::fail(int error) const {
  throw InputError(fmt::format("cannot listen on {}: {}", address_.text(), system_reason(error)));
}

void SocketListener::listen_on_tcp() {
  std::string reason;
  const HostAddresses found = look_up(address_, AI_PASSIVE, reason);
  if (found == nullptr) {
    throw InputError(fmt::format("cannot listen on {}: {}", address_.text(), reason));
  }
  int error = 0;
  for (const addrinfo* at = found.get(); at != nullptr && !fd_; at = at->ai_next) {
    FileDescriptor fd(::socket(at->ai_family, kSocketFlags, 0));
    const int on = 1;
    if (fd && ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
        ::bind(fd.get(), at->ai_addr, at->ai_addrlen) == 0 && ::listen(fd.get(), kBacklog) == 0) {
      fd_ = std::move(fd);
    } else {
      error = errno;
    }
  }
  if (!fd_) {
    fail(error);
  }
  sockaddr_storage name{};
  socklen_t length = sizeof(name);
  if (::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&name), &length) != 0) {
    fail(errno);
  }
  address_.port = ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(name).sin6_port
                                                   : reinterpret_cast<const sockaddr_in&>(name).sin_port);
}

void SocketListener::listen_on_path() {
  fd_ = FileDescriptor(::socket(AF_UNIX, kSocketFlags, 0));
  if (!fd_) {
    fail(errno);
  }
  ::fchmod(fd_.get(), 0600);  // bind() gives the file this mode; a chmod afterwards would leave it open for a moment
  const sockaddr_un name = path_address(address_);
  const auto bind_path = [&] { return ::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)); };
  if (bind_path() != 0) {
    if (errno != EADDRINUSE) {
      fail(errno);
    }
    struct stat facts {};
    if (::lstat(address_.path.c_str(), &facts) == 0 && !S_ISSOCK(facts.st_mode)) {
      throw InputError(fmt::format("cannot listen on {}: a file that is no socket is there", address_.text()));
    }
    const FileDescriptor probe(::socket(AF_UNIX, kSocketFlags, 0));
    if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0 || errno == EAGAIN) {
      throw InputError(fmt::format("cannot listen on {}: another process listens there", address_.text()));
    }
    if (errno != ECONNREFUSED && errno != ENOENT) {
      fail(errno);
    }
    ::unlink(address_.path.c_str());
    if (bind_path() != 0) {
      fail(errno);
    }
  }
  struct stat facts {};
  if (::lstat(address_.path.c_str(), &facts) == 0) {
    device_ = facts.st_dev;
    inode_ = facts.st_ino;
  }
  if (::listen(fd_.get(), kBacklog) != 0) {
    const int error = errno;
    ::unlink(address_.path.c_str());
    fail(error);
  }
}

SocketListener::Accepted SocketListener::accept() {
  for (;;) {
    const int fd = ::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      if (address_.kind == Address::Kind::tcp) {
        const int on = 1;
        ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      }
      return {FileDescriptor(fd), 0};
    }
    if (errno != EINTR && errno != ECONNABORTED) {
      return {FileDescriptor(), errno};
    }
  }
}

}  // namespace distbelief
