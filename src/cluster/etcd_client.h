#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "cluster/store_url.h"
#include "transport/socket/tls_stream.h"

namespace distbelief {

/// The keys of one job in etcd, over its JSON gateway (version 3 of its interface). Keys are named without what is
/// before them. Every request ends by its deadline, and goes to the servers in turn until one answers; that none does
/// is a value. A request that changes something may have been carried out even so. Any thread.
class EtcdClient {
 public:
  /// `tls`: for a store that is encrypted, which needs it. Throws InputError that names the file which cannot be used,
  /// or says that there is none.
  EtcdClient(StoreUrl url, const std::optional<TlsOptions>& tls);

  struct Value {
    std::string bytes = {};
    std::int64_t revision = 0;  ///< of its last change
  };
  /// The key's value is this; or its last change is this one, 0 for a key that is not there.
  struct Condition {
    std::string key = {};
    std::optional<std::string> value = {};
    std::int64_t revision = 0;
  };
  struct Change {
    std::string key = {};
    std::optional<std::string> value = {};  ///< none: the key goes; one that ends in '/': all below it
    std::int64_t lease = 0;                 ///< the key goes with it
  };
  struct Transaction {
    std::vector<Condition> if_all = {};
    std::vector<Change> change = {};
    std::vector<std::string> read = {};  ///< after the change, if it was made; one that ends in '/': all below it
  };
  struct [[nodiscard]] Answer {
    bool reached = false;
    std::string reason = {};  ///< for people, when it is not: "alpha:2379: Connection refused"
    bool held = false;        ///< all conditions, and so the change was made
    std::map<std::string, Value, std::less<>> values = {};  ///< of what is there
  };
  Answer transact(const Transaction& transaction, Clock::time_point deadline);
  /// What is there of these keys.
  Answer read(const std::vector<std::string>& keys, Clock::time_point deadline) {
    return transact({.read = keys}, deadline);
  }

  struct [[nodiscard]] LeaseAnswer {
    bool reached = false;
    std::string reason = {};
    std::int64_t lease = 0;
    std::chrono::seconds left{0};  ///< 0: there is no such lease any more
  };
  /// A lease ends when it was not kept for so long.
  LeaseAnswer grant_lease(std::chrono::seconds lasts, Clock::time_point deadline);
  LeaseAnswer keep_lease(std::int64_t lease, Clock::time_point deadline);
  /// With all its keys.
  void end_lease(std::int64_t lease, Clock::time_point deadline);

  const StoreUrl& url() const { return url_; }

 private:
  struct Reply {
    std::string body = {};
    std::string reason = {};  ///< when there is none
  };
  Reply ask(std::string_view path, const std::string& json, Clock::time_point deadline);
  std::string encoded_key(std::string_view key) const;

  const StoreUrl url_;
  const StreamMaker streams_;
  std::atomic<std::size_t> answers_ = 0;  // which of the servers did last
};

}  // namespace distbelief
