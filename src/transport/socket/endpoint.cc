#include "transport/socket/endpoint.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

#include "base/error.h"

namespace distbelief {
namespace {

constexpr int kSocketFlags = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
constexpr int kBacklog = 1024;

sockaddr_un path_address(const Address& address) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, address.path.data(), std::min(address.path.size(), sizeof(name.sun_path) - 1));
  return name;
}

struct FreeAddrinfo {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using HostAddresses = std::unique_ptr<addrinfo, FreeAddrinfo>;

/// Empty with a reason when the host is unknown.
HostAddresses look_up(const Address& address, int flags, std::string& reason) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) {
    reason = error == EAI_SYSTEM ? system_reason(errno) : ::gai_strerror(error);
    return nullptr;
  }
  return HostAddresses(found);
}

/// 0, or errno; EAGAIN when the queue of a unix socket's server is full.
int connect_until(int fd, const sockaddr* name, socklen_t length, Clock::time_point deadline) {
  if (::connect(fd, name, length) == 0) {
    return 0;
  }
  if (errno != EINPROGRESS && errno != EINTR) {
    return errno;
  }
  if (!wait_for_events(fd, POLLOUT, deadline)) {
    return ETIMEDOUT;
  }
  int error = 0;
  socklen_t size = sizeof(error);
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

int connect_to_path(int fd, const Address& address, Clock::time_point deadline) {
  const sockaddr_un name = path_address(address);
  for (;;) {
    const int error = connect_until(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name), deadline);
    if (error != EAGAIN || Clock::now() >= deadline) {
      return error;
    }
    ::poll(nullptr, 0, 5);  // nothing tells when the server's queue has room again
  }
}

}  // namespace

std::string system_reason(int error) { return std::error_code(error, std::generic_category()).message(); }

bool wait_for_events(int fd, short events, Clock::time_point deadline) {
  for (;;) {
    pollfd entry = {fd, events, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int ready = ::poll(&entry, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000)));
    if (ready > 0) {
      return true;
    }
    if (Clock::now() >= deadline) {
      return false;
    }
  }
}

ListeningSocket::ListeningSocket(const Address& address) : address_(address) {
  address.kind == Address::Kind::tcp ? listen_on_tcp() : listen_on_path();
}

ListeningSocket::~ListeningSocket() {
  struct stat facts {};
  if (inode_ != 0 && ::lstat(address_.path.c_str(), &facts) == 0 && facts.st_dev == device_ && facts.st_ino == inode_) {
    ::unlink(address_.path.c_str());
  }
}

void ListeningSocket::fail(int error) const {
  throw InputError(fmt::format("cannot listen on {}: {}", address_.text(), system_reason(error)));
}

void ListeningSocket::listen_on_tcp() {
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

void ListeningSocket::listen_on_path() {
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

ListeningSocket::Accepted ListeningSocket::accept() {
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

OpenedConnection open_connection(const Address& address, Clock::time_point deadline) {
  if (address.kind == Address::Kind::unix_path) {
    FileDescriptor fd(::socket(AF_UNIX, kSocketFlags, 0));
    const int error = fd ? connect_to_path(fd.get(), address, deadline) : errno;
    return error == 0 ? OpenedConnection{std::move(fd)} : OpenedConnection{{}, system_reason(error)};
  }
  std::string reason;
  const HostAddresses found = look_up(address, AI_ADDRCONFIG, reason);
  for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
    FileDescriptor fd(::socket(at->ai_family, kSocketFlags, 0));
    const int error = fd ? connect_until(fd.get(), at->ai_addr, at->ai_addrlen, deadline) : errno;
    if (error == 0) {
      const int on = 1;
      ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      return {std::move(fd)};
    }
    reason = system_reason(error);
  }
  return {{}, reason};
}

std::string peer_text(int fd) {
  sockaddr_storage name{};
  socklen_t length = sizeof(name);
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&name), &length) != 0) {
    return "unknown";
  }
  if (name.ss_family == AF_UNIX) {
    ucred who{};
    socklen_t size = sizeof(who);
    return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 ? fmt::format("pid {}", who.pid) : "unknown";
  }
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&name), length, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "unknown";
  }
  return name.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

}  // namespace distbelief
