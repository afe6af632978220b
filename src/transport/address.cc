#include "transport/address.h"

#include <sys/un.h>

#include <charconv>
#include <utility>

#include "base/error.h"

namespace distbelief {
namespace {

constexpr std::size_t kLongestPath = sizeof(sockaddr_un::sun_path) - 1;

[[noreturn]] void refuse(std::string_view text) {
  throw InputError(fmt::format("address '{}': expected tcp:HOST:PORT, tcp:[IPV6]:PORT or unix:/path", text));
}

std::uint16_t parse_port(std::string_view digits, std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    throw InputError(fmt::format("address '{}': '{}' is not a port (0 to 65535)", text, digits));
  }
  return port;
}

}  // namespace

Address Address::unix_path(std::string path) {
  if (path.size() > kLongestPath) {
    throw InputError(fmt::format("address 'unix:{}': a socket's path has at most {} bytes", path, kLongestPath));
  }
  return {Kind::unix_path, {}, 0, std::move(path)};
}

Address Address::parse(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) {
    refuse("with a zero byte");
  }
  if (text.starts_with("unix:") && text.size() > 5) {
    return unix_path(std::string(text.substr(5)));
  }
  if (!text.starts_with("tcp:")) {
    refuse(text);
  }
  const std::string_view rest = text.substr(4);
  const std::size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == rest.size()) {
    refuse(text);
  }
  std::string_view host = rest.substr(0, colon);
  if (host.starts_with('[') != host.ends_with(']')) {
    refuse(text);
  }
  if (host.starts_with('[')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    refuse(text);  // an IPv6 number without brackets: which colon is the port's cannot be known
  }
  if (host.empty()) {
    refuse(text);
  }
  return tcp(std::string(host), parse_port(rest.substr(colon + 1), text));
}

std::string Address::text() const {
  if (kind == Kind::unix_path) {
    return "unix:" + path;
  }
  return host.find(':') == std::string::npos ? fmt::format("tcp:{}:{}", host, port)
                                             : fmt::format("tcp:[{}]:{}", host, port);
}

}  // namespace distbelief
