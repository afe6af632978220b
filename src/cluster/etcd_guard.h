#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cluster/etcd_store.h"

namespace distbelief {

/// A process that waits to take the place of a job's coordinator, with EtcdStore::open() and a claim of kind `guarded`.
/// The coordinator sees that it is there by a key with a lease, which goes with this object; so it goes before the
/// claim is made. One thread.
class EtcdGuard {
 public:
  EtcdGuard(const StoreUrl& url, const std::optional<TlsOptions>& tls, const EtcdTiming& timing = EtcdTiming());
  ~EtcdGuard();
  EtcdGuard(const EtcdGuard&) = delete;
  EtcdGuard& operator=(const EtcdGuard&) = delete;

  struct Sight {
    enum class Kind : std::uint8_t {
      unreachable,  ///< etcd is not reached
      no_job,       ///< none was seen yet
      unaware,      ///< there is a coordinator, which has not heard of guards yet
      watched,      ///< and has: it will stop by itself before its lease ends
      lost,         ///< its lease has ended, but it may live, as it had not heard: nothing is to be done
      vacant,       ///< its lease has ended
      ended,        ///< the job that was seen is over
    };
    Kind kind = Kind::unreachable;
    std::string reason = {};             ///< of unreachable
    std::uint64_t term = 0;              ///< of the coordinator
    std::optional<JobFile> leader = {};  ///< as it was last seen
    std::string config = {};             ///< of the job, if it is there
  };
  /// Gives a sign of life, and says what there is. To be called more often than the lease lasts; takes no longer than
  /// three requests.
  Sight look();

 private:
  bool keep();

  EtcdClient client_;
  const EtcdTiming timing_;
  const std::string key_;
  std::int64_t lease_ = 0;
  std::string reason_;
  std::uint64_t seen_term_ = 0;  // of the last coordinator whose lease was seen
  std::optional<JobFile> leader_;
};

}  // namespace distbelief
