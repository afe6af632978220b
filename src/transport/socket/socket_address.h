#pragma once

#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <memory>
#include <string>

#include "transport/address.h"

namespace distbelief {

/// What every socket here is: never blocks, and is not inherited by programs that are started.
inline constexpr int kSocketFlags = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

/// The system's form of a unix address.
sockaddr_un path_address(const Address& address);

struct FreeAddrinfo {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using HostAddresses = std::unique_ptr<addrinfo, FreeAddrinfo>;

/// The numbers of a tcp address's host; empty with a reason when it is unknown. `flags` as of getaddrinfo().
HostAddresses look_up(const Address& address, int flags, std::string& reason);

}  // namespace distbelief
