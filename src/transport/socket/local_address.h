#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "transport/address.h"

namespace distbelief {

/// The number of the address of this machine from which `address` is reached, as the system's routes have it; empty
/// when its host is unknown or there is no way to it. Sends nothing.
std::string local_host_towards(const Address& address);

/// Numbers of this machine's addresses under which others may reach it, neither loopback nor of one link only: that of
/// the default route first.
std::vector<std::string> hosts_of_this_machine();

struct [[nodiscard]] FoundListener {
  std::optional<Address> address = {};
  std::string reason = {};  ///< for people, when there is none
};

/// The first of the addresses at which somebody accepts a connection; each gets a second, in turn, until the deadline.
FoundListener find_listener(std::span<const Address> addresses, Clock::time_point deadline);

}  // namespace distbelief
