#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cluster/job_rules.h"
#include "cluster/store.h"
#include "transport/address.h"
#include "transport/tls_options.h"

namespace distbelief {

struct CoordinatorOptions {
  JobRules rules = {};  ///< with an empty token one is made
  Address listen = Address::tcp("127.0.0.1", 0);
  /// Names of this machine for the addresses in job.json, the likeliest first, when others do not reach it as it
  /// listens.
  std::vector<std::string> advertised_hosts = {};
  std::optional<TlsOptions> tls = {};
  std::filesystem::path run_folder = {};  ///< empty: the coordinator of a job whose folder this machine may not see
  /// Where it writes down what its successor must know; without: the run folder. Shared only because options are
  /// copied: the coordinator alone uses it.
  std::shared_ptr<Store> store = {};
  /// The one before died without having ended: this one takes its place. When it had not got so far as to be reached,
  /// this one is the first.
  bool comes_back = false;
  /// It takes the place of one on another machine, and listens where it is told to, not where that one did.
  bool elsewhere = false;
  std::chrono::milliseconds stranger_limit{5'000};  ///< a connection that has not joined by then is closed
  /// One line at a time, on the coordinator's thread.
  std::function<void(const std::string& line)> log = {};
};

/// How often a coordinator that was killed is started again: one that dies more often would go on dying.
inline constexpr int kCoordinatorReturns = 20;

/// RUN/coordinator.state: see Coordinator.
std::filesystem::path coordinator_state_path(const std::filesystem::path& run_folder);

struct [[nodiscard]] JobResult {
  bool succeeded = false;
  std::string reason = {};
  /// The job goes on, but this coordinator must not act any more: Store::may_act(). It does nothing since.
  bool deposed = false;
};

/// The coordinator of one job, listening from its construction on, with a thread of its own. RUN/job.json says where,
/// as long as it lives, and so does the store, which has what its successor must know, until the job has ended. What it
/// decides is CoordinatorState's; this is its sockets, its clock and its store.
class Coordinator {
 public:
  /// Throws InputError when it cannot listen, or cannot write to the run folder.
  explicit Coordinator(CoordinatorOptions options);
  /// Without having ended, it is as if the process was killed: members see closed connections.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  const Address& address() const;
  const std::string& token() const;

  /// Orders all to stop, as an observer would. Thread-safe.
  void stop(const std::string& reason);
  /// How the job ended; nothing at the deadline. Thread-safe.
  std::optional<JobResult> wait(Clock::time_point deadline);

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

/// What the coordinator's process does: runs one until its job has ended. When `stop` is requested, all members are
/// ordered to stop first, for at most JobRules::stop_limit.
JobResult run_coordinator(CoordinatorOptions options, const std::stop_token& stop);

}  // namespace distbelief
