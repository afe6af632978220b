#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace distbelief {

/// Where a process listens: "tcp:HOST:PORT", "tcp:[IPV6]:PORT" or "unix:/path".
struct Address {
  enum class Kind : std::uint8_t { tcp, unix_path };
  Kind kind = Kind::tcp;
  std::string host = {};   ///< of tcp: a name or a number, an IPv6 one without brackets
  std::uint16_t port = 0;  ///< of tcp; to listen on 0 lets the system choose
  std::string path = {};   ///< of unix_path

  /// Throws InputError: one line with the text and what was expected.
  static Address parse(std::string_view text);
  static Address tcp(std::string host, std::uint16_t port) { return {Kind::tcp, std::move(host), port, {}}; }
  /// Throws InputError when the path is longer than the system's sockets can have.
  static Address unix_path(std::string path);

  /// What parse() makes this address of.
  std::string text() const;
  friend bool operator==(const Address&, const Address&) = default;
};

}  // namespace distbelief
