#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "transport/address.h"

namespace distbelief {

/// Where the coordinators of a job write down what their successors must know, when that is not the run's folder:
/// "etcd://HOST[:PORT],.../NAME"; "etcds://" with TLS.
struct StoreUrl {
  std::vector<Address> servers = {};  ///< of one etcd cluster; any will do
  std::string name = {};              ///< of the job: what is before its keys
  bool encrypted = false;

  /// Throws InputError: one line with the text and what was expected. Without a name it is kDefaultName, without a port
  /// etcd's.
  static StoreUrl parse(std::string_view text);
  /// What parse() makes this of.
  std::string text() const;
  friend bool operator==(const StoreUrl&, const StoreUrl&) = default;

  static constexpr std::string_view kDefaultName = "distbelief";
};

}  // namespace distbelief
