#include "transport/socket/local_address.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "transport/socket/endpoint.h"
#include "transport/socket/socket_address.h"

namespace distbelief {
namespace {

constexpr std::chrono::seconds kEachAddress{1};
constexpr std::chrono::milliseconds kBetweenRounds{50};

std::string number_of(const sockaddr* name, socklen_t length) {
  char host[NI_MAXHOST];
  return ::getnameinfo(name, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) == 0 ? host : "";
}

/// Of this link only, or of this machine only.
bool is_local(const sockaddr* name) {
  if (name->sa_family == AF_INET6) {
    const in6_addr& number = reinterpret_cast<const sockaddr_in6*>(name)->sin6_addr;
    return IN6_IS_ADDR_LINKLOCAL(&number) || IN6_IS_ADDR_LOOPBACK(&number);
  }
  const std::uint32_t number = ntohl(reinterpret_cast<const sockaddr_in*>(name)->sin_addr.s_addr);
  return number >> 24 == 127 || number >> 16 == 0xa9fe;
}

}  // namespace

std::string local_host_towards(const Address& address) {
  std::string reason;
  const HostAddresses found = look_up(address, AI_ADDRCONFIG, reason);
  for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
    // To connect a datagram socket only asks for the route.
    const FileDescriptor fd(::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage name{};
    socklen_t length = sizeof name;
    if (fd && ::connect(fd.get(), at->ai_addr, at->ai_addrlen) == 0 &&
        ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&name), &length) == 0) {
      return number_of(reinterpret_cast<const sockaddr*>(&name), length);
    }
  }
  return {};
}

std::vector<std::string> hosts_of_this_machine() {
  std::vector<std::string> hosts;
  const auto add = [&](const std::string& host) {
    if (!host.empty() && std::ranges::find(hosts, host) == hosts.end()) {
      hosts.push_back(host);
    }
  };
  add(local_host_towards(Address::tcp("192.0.2.1", 9)));  // a number that stands for "somewhere else" (RFC 5737)
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return hosts;
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(list, ::freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
      const bool usable = at->ifa_addr != nullptr && at->ifa_addr->sa_family == family && (at->ifa_flags & IFF_UP) != 0;
      if (usable && !is_local(at->ifa_addr)) {
        add(number_of(at->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6)));
      }
    }
  }
  return hosts;
}

FoundListener find_listener(std::span<const Address> addresses, Clock::time_point deadline) {
  std::string reason = "there is no address";
  for (;;) {
    for (const Address& address : addresses) {
      const OpenedConnection opened = open_connection(address, std::min(deadline, Clock::now() + kEachAddress));
      if (opened.fd) {
        return {.address = address};
      }
      reason = fmt::format("{}: {}", address.text(), opened.reason);
    }
    if (Clock::now() + kBetweenRounds >= deadline) {
      return {.reason = reason};
    }
    std::this_thread::sleep_for(kBetweenRounds);
  }
}

}  // namespace distbelief
