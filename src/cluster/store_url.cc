#include "cluster/store_url.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace distbelief {
namespace {

constexpr std::string_view kPlainScheme = "etcd://";
constexpr std::string_view kEncryptedScheme = "etcds://";
constexpr std::string_view kEtcdPort = "2379";

[[noreturn]] void refuse_store(std::string_view text, const std::string& why) {
  throw InputError(
      fmt::format("--store {}: {}expected etcd://HOST:PORT/NAME, several HOST:PORT separated by commas, "
                  "or etcds:// for TLS",
                  text, why.empty() ? "" : why + "; "));
}

bool is_for_names(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
         c == '.' || c == '/';
}

/// With a port.
Address server_address(std::string_view text, std::string_view url) {
  const std::size_t colon = text.rfind(':');
  const bool has_port = colon != std::string_view::npos && text.find(']', colon) == std::string_view::npos;
  try {
    const Address address =
        Address::parse(fmt::format("tcp:{}{}", text, has_port ? "" : fmt::format(":{}", kEtcdPort)));
    if (address.port != 0) {
      return address;
    }
  } catch (const InputError&) {
    // said below, with the option's name
  }
  refuse_store(url, fmt::format("'{}' is no HOST:PORT", text));
}

}  // namespace

StoreUrl StoreUrl::parse(std::string_view text) {
  StoreUrl url;
  std::string_view rest = text;
  url.encrypted = rest.starts_with(kEncryptedScheme);
  if (!url.encrypted && !rest.starts_with(kPlainScheme)) {
    refuse_store(text, "");
  }
  rest.remove_prefix(url.encrypted ? kEncryptedScheme.size() : kPlainScheme.size());
  const std::size_t slash = rest.find('/');
  std::string_view servers = rest.substr(0, slash);
  std::string_view name = slash == std::string_view::npos ? "" : rest.substr(slash + 1);
  while (name.ends_with('/')) {
    name.remove_suffix(1);
  }
  url.name = name.empty() ? kDefaultName : name;
  if (!std::ranges::all_of(url.name, is_for_names)) {
    refuse_store(text, "a job's name has letters, digits and - _ . / only");
  }
  for (;;) {
    const std::size_t comma = servers.find(',');
    url.servers.push_back(server_address(servers.substr(0, comma), text));
    if (comma == std::string_view::npos) {
      return url;
    }
    servers.remove_prefix(comma + 1);
  }
}

std::string StoreUrl::text() const {
  std::string list;
  for (const Address& server : servers) {
    list += (list.empty() ? "" : ",") + server.text().substr(std::string_view("tcp:").size());
  }
  return fmt::format("{}{}/{}", encrypted ? kEncryptedScheme : kPlainScheme, list, name);
}

}  // namespace distbelief
