#include "cluster/etcd_guard.h"

#include <charconv>

namespace distbelief {
namespace {

std::string text_in(const EtcdClient::Answer& answer, const char* key) {
  const auto found = answer.values.find(key);
  return found == answer.values.end() ? "" : found->second.bytes;
}

std::uint64_t number_in(const EtcdClient::Answer& answer, const char* key) {
  const std::string text = text_in(answer, key);
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

EtcdGuard::EtcdGuard(const StoreUrl& url, const std::optional<TlsOptions>& tls, const EtcdTiming& timing)
    : client_(url, tls), timing_(timing), key_(etcd_keys::kGuards + make_token()) {}

EtcdGuard::~EtcdGuard() {
  if (lease_ != 0) {
    client_.end_lease(lease_, Clock::now() + timing_.request_limit);
  }
}

bool EtcdGuard::keep() {
  const auto soon = [&] { return Clock::now() + timing_.request_limit; };
  if (lease_ != 0) {
    const EtcdClient::LeaseAnswer kept = client_.keep_lease(lease_, soon());
    reason_ = kept.reason;
    if (!kept.reached || kept.left > std::chrono::seconds(0)) {
      return kept.reached;
    }
    lease_ = 0;
  }
  const EtcdClient::LeaseAnswer granted = client_.grant_lease(timing_.lease, soon());
  reason_ = granted.reason;
  if (!granted.reached) {
    return false;
  }
  const EtcdClient::Answer answer =
      client_.transact({.change = {{.key = key_, .value = "", .lease = granted.lease}}}, soon());
  reason_ = answer.reason;
  lease_ = answer.reached ? granted.lease : 0;
  return answer.reached;
}

EtcdGuard::Sight EtcdGuard::look() {
  Sight sight;
  if (!keep()) {
    sight.reason = reason_;
    return sight;
  }
  const EtcdClient::Answer now =
      client_.read({etcd_keys::kTerm, etcd_keys::kLeader, etcd_keys::kState, etcd_keys::kGuarded, etcd_keys::kConfig},
                   Clock::now() + timing_.request_limit);
  if (!now.reached) {
    sight.reason = now.reason;
    return sight;
  }
  using Kind = Sight::Kind;
  const std::uint64_t term = number_in(now, etcd_keys::kTerm);
  const bool knows = number_in(now, etcd_keys::kGuarded) == term;
  sight.config = text_in(now, etcd_keys::kConfig);
  if (now.values.contains(etcd_keys::kLeader)) {
    seen_term_ = term;
    leader_ = leader_in(now);
    sight.kind = knows ? Kind::watched : Kind::unaware;
  } else if (seen_term_ == 0) {
    sight.kind = Kind::no_job;
  } else if (!now.values.contains(etcd_keys::kState)) {
    sight.kind = Kind::ended;
  } else {
    sight.kind = seen_term_ == term && knows ? Kind::vacant : Kind::lost;
  }
  sight.term = term;
  sight.leader = leader_;
  return sight;
}

}  // namespace distbelief
