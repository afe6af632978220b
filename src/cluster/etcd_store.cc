#include "cluster/etcd_store.h"

#include <fmt/format.h>

#include <charconv>

#include "base/error.h"
#include "transport/socket/endpoint.h"

namespace distbelief {
namespace {

using ClaimKind = EtcdStore::Claim::Kind;

constexpr std::chrono::seconds kProbePatience{1};

std::uint64_t term_in(const EtcdClient::Answer& answer, const char* key = etcd_keys::kTerm) {
  std::uint64_t term = 0;
  if (const auto found = answer.values.find(key); found != answer.values.end()) {
    const std::string& text = found->second.bytes;
    std::from_chars(text.data(), text.data() + text.size(), term);
  }
  return term;
}

std::int64_t revision_of(const EtcdClient::Answer& answer, const char* key) {
  const auto found = answer.values.find(key);
  return found == answer.values.end() ? 0 : found->second.revision;
}

bool answers_now(const JobFile& leader) {
  for (const Address& address : leader.addresses()) {
    if (open_connection(address, Clock::now() + kProbePatience).fd) {
      return true;
    }
  }
  return false;
}

void refuse_running(const StoreUrl& url, const EtcdClient::Answer& now) {
  if (const std::optional<JobFile> leader = leader_in(now); leader && answers_now(*leader)) {
    throw InputError(
        fmt::format("--store {}: a job of this name runs already, its coordinator is at {}; give this one "
                    "another name",
                    url.text(), leader->address.text()));
  }
}

/// Empty, or why this claim does not hold for good.
std::string why_not_mine(const EtcdStore::Claim& claim, const EtcdClient::Answer& now) {
  if (claim.kind == ClaimKind::first) {
    return {};
  }
  if (const std::uint64_t newest = term_in(now); newest != claim.term) {
    return fmt::format("a coordinator of term {} took the place of that of term {}", newest, claim.term);
  }
  if (claim.kind == ClaimKind::guarded && revision_of(now, etcd_keys::kLeader) != 0) {
    return fmt::format("the coordinator of term {} is back", claim.term);
  }
  if (claim.kind == ClaimKind::guarded && term_in(now, etcd_keys::kGuarded) != claim.term) {
    return fmt::format("the coordinator of term {} knows of no guard", claim.term);
  }
  return {};
}

/// To take the term after the newest, if nothing has changed since `now`.
EtcdClient::Transaction taking(const EtcdStore::Claim& claim, const EtcdClient::Answer& now, const std::string& sign,
                               std::int64_t lease) {
  EtcdClient::Transaction take;
  for (const char* key : {etcd_keys::kTerm, etcd_keys::kLeader, etcd_keys::kGuarded}) {
    take.if_all.push_back({.key = key, .revision = revision_of(now, key)});
  }
  take.change = {{.key = etcd_keys::kTerm, .value = std::to_string(term_in(now) + 1)},
                 {.key = etcd_keys::kLeader, .value = sign, .lease = lease},
                 {.key = etcd_keys::kGuarded}};
  if (claim.kind == ClaimKind::first) {
    take.change.push_back({.key = etcd_keys::kState});
    take.change.push_back({.key = etcd_keys::kConfig});
  }
  return take;
}

}  // namespace

std::optional<JobFile> leader_in(const EtcdClient::Answer& answer) {
  const auto found = answer.values.find(etcd_keys::kLeader);
  if (found == answer.values.end()) {
    return std::nullopt;
  }
  try {
    return parse_job_file(found->second.bytes, etcd_keys::kLeader);
  } catch (const FileError&) {
    return std::nullopt;  // it does not listen yet
  }
}

void EtcdStore::check_free(const StoreUrl& url, const std::optional<TlsOptions>& tls, Clock::time_point deadline) {
  const EtcdClient::Answer now = EtcdClient(url, tls).read({etcd_keys::kLeader}, deadline);
  if (!now.reached) {
    throw InputError(fmt::format("--store {}: cannot reach etcd: {}", url.text(), now.reason));
  }
  refuse_running(url, now);
}

EtcdStore::Opened EtcdStore::open(const StoreUrl& url, const std::optional<TlsOptions>& tls, const Claim& claim,
                                  Clock::time_point deadline, const EtcdTiming& timing) {
  EtcdClient client(url, tls);
  const auto in_time = [&] { return std::min(deadline, Clock::now() + timing.request_limit); };
  const std::string sign = make_token();  // until it is known where it listens: not JSON, and so no address
  std::optional<Held> asked;              // perhaps with success, but without an answer
  std::string reason;
  for (;;) {
    const EtcdClient::Answer now = client.read({etcd_keys::kTerm, etcd_keys::kLeader, etcd_keys::kGuarded}, in_time());
    if (const auto leader = now.values.find(etcd_keys::kLeader);
        asked && leader != now.values.end() && leader->second.bytes == sign) {
      return {.store = std::unique_ptr<EtcdStore>(new EtcdStore(url, tls, term_in(now), *asked, timing))};
    }
    if (const std::string why = now.reached ? why_not_mine(claim, now) : ""; !why.empty()) {
      return {.reason = why, .another_leads = true};
    }
    if (!now.reached) {
      reason = now.reason;
    } else if (claim.kind == ClaimKind::first && revision_of(now, etcd_keys::kLeader) != 0) {
      refuse_running(url, now);
      reason = "the lease of an earlier coordinator has not ended";
    } else {
      asked = Held{.lease = 0, .since = Clock::now()};
      const EtcdClient::LeaseAnswer lease = client.grant_lease(timing.lease, in_time());
      asked->lease = lease.lease;
      const EtcdClient::Answer taken = lease.reached ? client.transact(taking(claim, now, sign, lease.lease), in_time())
                                                     : EtcdClient::Answer{.reason = lease.reason};
      if (taken.held) {
        return {.store = std::unique_ptr<EtcdStore>(new EtcdStore(url, tls, term_in(now) + 1, *asked, timing))};
      }
      reason = taken.reached ? "another process wants to be the coordinator" : taken.reason;
    }
    if (Clock::now() + timing.between_tries >= deadline) {
      return {.reason = fmt::format("--store {}: {}", url.text(), reason)};
    }
    std::this_thread::sleep_for(timing.between_tries);
  }
}

EtcdStore::EtcdStore(const StoreUrl& url, const std::optional<TlsOptions>& tls, std::uint64_t term, const Held& held,
                     const EtcdTiming& timing)
    : client_(url, tls),
      timing_(timing),
      term_(term),
      lease_ends_(held.since + timing.lease - timing.margin),
      lease_(held.lease),
      keeper_([this](const std::stop_token& stop) { keep(stop); }) {}

EtcdStore::~EtcdStore() {
  end_keeper();
  if (removed_) {
    client_.end_lease(lease_, soon());
  }
}

void EtcdStore::end_keeper() {
  keeper_.request_stop();
  if (keeper_.joinable()) {
    keeper_.join();
  }
}

// What the coordinator does.

bool EtcdStore::may_act() const { return !deposed_ && (!guarded_ || Clock::now() < lease_ends_.load()); }

std::string EtcdStore::why_not() const {
  const std::scoped_lock lock(mutex_);
  return !why_deposed_.empty() ? why_deposed_
                               : fmt::format(
                                     "--store {}: could not be told for {} s that this coordinator lives, and a guard "
                                     "may take its place",
                                     client_.url().text(), timing_.lease.count());
}

std::string EtcdStore::trouble() const {
  const std::scoped_lock lock(mutex_);
  // One that is guarded either reaches etcd soon enough or stops, and that is told.
  return reached_ || guarded_ ? "" : fmt::format("--store {}: {}", client_.url().text(), why_not_reached_);
}

void EtcdStore::heard(bool reached, const std::string& reason) {
  const std::scoped_lock lock(mutex_);
  reached_ = reached;
  why_not_reached_ = reason;
}

void EtcdStore::depose(const std::string& reason) {
  const std::scoped_lock lock(mutex_);
  if (!deposed_.exchange(true)) {
    why_deposed_ = reason;
  }
}

std::optional<bool> EtcdStore::change(std::vector<EtcdClient::Change> what, std::string& reason) {
  const EtcdClient::Answer answer =
      client_.transact({.if_all = {{.key = etcd_keys::kTerm, .value = std::to_string(term_)}},
                        .change = std::move(what),
                        .read = {etcd_keys::kTerm}},
                       soon());
  heard(answer.reached, answer.reason);
  if (!answer.reached) {
    reason = fmt::format("--store {}: {}", client_.url().text(), answer.reason);
    return std::nullopt;
  }
  if (!answer.held) {
    depose(fmt::format("a coordinator of term {} took the place of this one, of term {}", term_in(answer), term_));
  }
  return answer.held;
}

std::optional<std::string> EtcdStore::read(std::string_view name) {
  const EtcdClient::Answer answer = client_.read({std::string(name)}, soon());
  if (!answer.reached) {
    throw FileError(fmt::format("--store {}: {}", client_.url().text(), answer.reason));
  }
  const auto found = answer.values.find(name);
  return found == answer.values.end() ? std::nullopt : std::optional(found->second.bytes);
}

bool EtcdStore::write(std::string_view name, std::string_view contents, Outlives /*outlives*/) {
  if (!may_act()) {
    return false;
  }
  std::string reason = trouble();
  // Where it was not reached just now nobody waits for it again: the keeper finds out when it is.
  if (reached_ || guarded_) {
    if (const auto written = change({{.key = std::string(name), .value = std::string(contents)}}, reason)) {
      return *written;
    }
  }
  if (guarded_) {  // what is done now, a successor would not know
    depose(reason + ", and a guard may take this coordinator's place");
    return false;
  }
  throw FileError(reason);
}

void EtcdStore::remove(std::string_view name) {
  std::string reason;
  if (!reached_) {
    return;  // the next job of this name finds it, and removes it
  }
  if (name != etcd_keys::kState) {
    (void)change({{.key = std::string(name)}}, reason);
    return;
  }
  end_keeper();  // it would write of guards that wait
  // The state first, and the leader after it: a guard that finds neither knows that the job has ended.
  removed_ = change({{.key = etcd_keys::kState}, {.key = etcd_keys::kConfig}, {.key = etcd_keys::kGuarded}}, reason)
                 .value_or(false);
}

void EtcdStore::publish(const std::string& job_file) {
  const std::scoped_lock lock(mutex_);
  leader_ = job_file;
  is_published_ = false;
  wake_ = true;
  woken_.notify_all();
}

// The keeper's thread.

void EtcdStore::keep(const std::stop_token& stop) {
  Clock::time_point next = Clock::now() + timing_.keep_every;
  while (!stop.stop_requested() && !deposed_) {
    bool publishes = false;
    {
      std::unique_lock lock(mutex_);
      woken_.wait_until(lock, stop, next, [&] { return wake_; });
      wake_ = false;
      publishes = !is_published_;
    }
    if (stop.stop_requested()) {
      return;
    }
    if (publishes) {
      publish_again();
    }
    if (Clock::now() >= next) {
      next = Clock::now() + timing_.keep_every;
      keep_lease();
      look_for_guards();
    }
  }
}

void EtcdStore::keep_lease() {
  const Clock::time_point asked = Clock::now();
  const EtcdClient::LeaseAnswer kept = client_.keep_lease(lease_, soon());
  heard(kept.reached, kept.reason);
  if (!kept.reached) {
    return;
  }
  if (kept.left > std::chrono::seconds(0)) {
    lease_ends_ = asked + kept.left - timing_.margin;
    return;
  }
  // It had ended. If nobody took the next term since, there is no harm.
  const EtcdClient::LeaseAnswer granted = client_.grant_lease(timing_.lease, soon());
  if (granted.reached) {
    lease_ = granted.lease;
    if (publish_again()) {
      lease_ends_ = asked + granted.left - timing_.margin;
    }
  }
}

bool EtcdStore::publish_again() {
  std::string leader;
  {
    const std::scoped_lock lock(mutex_);
    leader = leader_;
    is_published_ = true;
  }
  std::string reason;
  const bool done = change({{.key = etcd_keys::kLeader, .value = leader, .lease = lease_}}, reason).value_or(false);
  const std::scoped_lock lock(mutex_);
  is_published_ = is_published_ && done;
  return done;
}

void EtcdStore::look_for_guards() {
  const EtcdClient::Answer now = client_.read({etcd_keys::kTerm, etcd_keys::kGuarded, etcd_keys::kGuards}, soon());
  if (!now.reached) {
    return;
  }
  if (term_in(now) != term_) {
    depose(fmt::format("a coordinator of term {} took the place of this one, of term {}", term_in(now), term_));
    return;
  }
  const auto first = now.values.lower_bound(etcd_keys::kGuards);
  const bool waits = first != now.values.end() && first->first.starts_with(etcd_keys::kGuards);
  const bool is_told = term_in(now, etcd_keys::kGuarded) == term_;
  std::string ignored;
  if (waits && !is_told) {
    guarded_ = true;  // before etcd hears of it: whoever reads it there can rely on it
    (void)change({{.key = etcd_keys::kGuarded, .value = std::to_string(term_)}}, ignored);
  } else if (!waits && guarded_ && change({{.key = etcd_keys::kGuarded}}, ignored).value_or(false)) {
    guarded_ = false;  // after it: from now on nobody may take its place
  }
}

std::optional<JobFile> find_leader(EtcdClient& client, Clock::time_point deadline) {
  return leader_in(client.read({etcd_keys::kLeader}, deadline));
}

}  // namespace distbelief
