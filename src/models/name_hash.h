#pragma once

#include <cstdint>
#include <string_view>

namespace distbelief {

/// FNV-1a: the same for a name on every machine, so that a layer's random numbers follow its name.
constexpr std::uint64_t name_hash(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  }
  return hash;
}

}  // namespace distbelief
