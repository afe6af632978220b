#pragma once

#include <cstdint>
#include <string>

namespace distbelief {

/// A message of the control plane: what it is and its bytes. The numbers of kinds belong to those who exchange them.
struct Message {
  std::uint16_t kind = 0;
  std::string body = {};
  friend bool operator==(const Message&, const Message&) = default;
};

}  // namespace distbelief
