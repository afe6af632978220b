#include "transport/socket/socket_address.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/socket/endpoint.h"

namespace distbelief {

sockaddr_un path_address(const Address& address) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, address.path.data(), std::min(address.path.size(), sizeof(name.sun_path) - 1));
  return name;
}

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

}  // namespace distbelief
