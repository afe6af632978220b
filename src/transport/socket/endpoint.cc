#include "transport/socket/endpoint.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "transport/socket/socket_address.h"

namespace distbelief {
namespace {

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

/// Where nobody listens on a port of the range that dialling takes its own ports from, a dialled connection can end
/// where it begins.
bool is_its_own_peer(int fd) {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_length = sizeof(own);
  socklen_t peer_length = sizeof(peer);
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_length) == 0 &&
         ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_length) == 0 && own_length == peer_length &&
         std::memcmp(&own, &peer, own_length) == 0;
}

bool means_nobody_listens(int error) { return error == ECONNREFUSED || error == ENOENT; }

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

OpenedConnection open_connection(const Address& address, Clock::time_point deadline) {
  if (address.kind == Address::Kind::unix_path) {
    FileDescriptor fd(::socket(AF_UNIX, kSocketFlags, 0));
    const int error = fd ? connect_to_path(fd.get(), address, deadline) : errno;
    return error == 0 ? OpenedConnection{std::move(fd)}
                      : OpenedConnection{{}, system_reason(error), means_nobody_listens(error)};
  }
  std::string reason;
  bool refused = false;
  const HostAddresses found = look_up(address, AI_ADDRCONFIG, reason);
  for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
    FileDescriptor fd(::socket(at->ai_family, kSocketFlags, 0));
    int error = fd ? connect_until(fd.get(), at->ai_addr, at->ai_addrlen, deadline) : errno;
    if (error == 0 && is_its_own_peer(fd.get())) {
      error = ECONNREFUSED;
    }
    if (error == 0) {
      const int on = 1;
      ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      return {std::move(fd)};
    }
    reason = system_reason(error);
    refused = means_nobody_listens(error);
  }
  return {{}, reason, refused};
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
