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
  std::filesystem::path run_folder = {};
  /// The one that ran in the folder died without having ended: this one listens where it did and takes its place. When
  /// it had not got so far as to be reached, this one is the first.
  bool comes_back = false;
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
};

/// The coordinator of one job, listening from its construction on, with a thread of its own. RUN/job.json says where,
/// as long as it lives; RUN/coordinator.state has what its successor must know, until the job has ended. What it
/// decides is CoordinatorState's; this is its sockets, its clock and its file.
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
