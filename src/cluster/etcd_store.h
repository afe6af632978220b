#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "cluster/etcd_client.h"
#include "cluster/job_file.h"
#include "cluster/store.h"

namespace distbelief {

/// The keys of a job in etcd.
namespace etcd_keys {
inline constexpr char kTerm[] = "term";                ///< the newest that was taken; never removed
inline constexpr char kLeader[] = "leader";            ///< how its coordinator is reached; goes with its lease
inline constexpr char kState[] = "coordinator.state";  ///< as long as the job has not ended
inline constexpr char kConfig[] = "run.yaml";          ///< for a coordinator on a machine without the run's folder
inline constexpr char kGuarded[] = "guarded";          ///< the term whose coordinator knows that it may be replaced
inline constexpr char kGuards[] = "guards/";  ///< below: processes that wait to replace it; go with their leases
}  // namespace etcd_keys

struct EtcdTiming {
  std::chrono::seconds lease{5};                   ///< so long after its last sign of life a coordinator is replaced
  std::chrono::milliseconds margin{500};           ///< it stops so much earlier: clocks, and what is on its way
  std::chrono::milliseconds keep_every{1'000};     ///< signs of life
  std::chrono::milliseconds request_limit{2'000};  ///< for one answer
  std::chrono::milliseconds between_tries{100};    ///< to become the coordinator
};

/// What one coordinator of a job writes into etcd. Its term is taken by a transaction, so that no two have the same,
/// and everything it writes is written under the condition that its term is still the newest.
///
/// A lease that it keeps alive says that it lives. When the lease is gone another may take the next term, but only if a
/// *guard* waits for that and this coordinator knows of it: only then must it stop when it cannot keep the lease, and
/// is said to be guarded. Without a guard nobody can take its place but whoever saw it die, and it goes on without
/// etcd.
class EtcdStore : public Store {
 public:
  /// What this process knows of the coordinator before.
  struct Claim {
    enum class Kind : std::uint8_t {
      first,   ///< there should be none: the job begins, and what was left of an earlier one goes
      dead,    ///< the one of `term` is dead, or is this process itself, which had to stop
      guarded  ///< the one of `term` lived while this process was its guard
    };
    Kind kind = Kind::first;
    std::uint64_t term = 0;
  };
  struct [[nodiscard]] Opened {
    std::unique_ptr<EtcdStore> store = nullptr;
    std::string reason = {};     ///< for people, when there is none
    bool another_leads = false;  ///< and that is why: there is nothing to be done for this process
  };
  /// Takes the next term. Tries until the deadline while etcd cannot be reached and, of a job that begins, while the
  /// lease of an earlier coordinator lasts that does not answer any more. Throws InputError when a coordinator of a job
  /// of this name answers.
  static Opened open(const StoreUrl& url, const std::optional<TlsOptions>& tls, const Claim& claim,
                     Clock::time_point deadline, const EtcdTiming& timing = EtcdTiming());
  /// Throws InputError when etcd is not reached by the deadline, or a coordinator of a job of this name answers.
  static void check_free(const StoreUrl& url, const std::optional<TlsOptions>& tls, Clock::time_point deadline);
  /// When the job has ended (its state was removed), it is not to be found any more.
  ~EtcdStore() override;

  std::uint64_t begin_term() override { return term_; }
  std::optional<std::string> read(std::string_view name) override;
  bool write(std::string_view name, std::string_view contents, Outlives outlives) override;
  /// Of the state: the job has ended, and the rest goes too.
  void remove(std::string_view name) override;
  void publish(const std::string& job_file) override;
  bool may_act() const override;
  std::string why_not() const override;
  std::string trouble() const override;

  /// Another takes over when this one cannot keep its lease.
  bool guarded() const { return guarded_; }

 private:
  struct Held {
    std::int64_t lease = 0;
    Clock::time_point since = {};  ///< before it was asked for
  };
  EtcdStore(const StoreUrl& url, const std::optional<TlsOptions>& tls, std::uint64_t term, const Held& held,
            const EtcdTiming& timing);
  void keep(const std::stop_token& stop);
  void end_keeper();
  void keep_lease();
  void look_for_guards();
  bool publish_again();
  void depose(const std::string& reason);
  void heard(bool reached, const std::string& reason);
  /// Under the condition that this term is the newest; deposes when it is not. Nothing when etcd was not reached.
  std::optional<bool> change(std::vector<EtcdClient::Change> what, std::string& reason);
  Clock::time_point soon() const { return Clock::now() + timing_.request_limit; }

  EtcdClient client_;
  const EtcdTiming timing_;
  const std::uint64_t term_;
  std::atomic<bool> guarded_ = false;
  std::atomic<bool> deposed_ = false;
  std::atomic<bool> reached_ = true;  // when it was last asked
  std::atomic<Clock::time_point> lease_ends_;
  std::int64_t lease_;  // the keeper's while it runs
  bool removed_ = false;

  mutable std::mutex mutex_;
  std::condition_variable_any woken_;
  std::string why_deposed_;  // guarded by mutex_, as all below
  std::string why_not_reached_;
  std::string leader_;  // what is to be published
  bool is_published_ = true;
  bool wake_ = false;

  std::jthread keeper_;
};

/// How the coordinator is reached that this answer names, if it says so already.
std::optional<JobFile> leader_in(const EtcdClient::Answer& answer);

/// The coordinator that leads the job now; nothing when there is none, or etcd is not reached by the deadline. Any
/// thread.
std::optional<JobFile> find_leader(EtcdClient& client, Clock::time_point deadline);

}  // namespace distbelief
