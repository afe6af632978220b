#pragma once

#include <functional>
#include <string>

#include "cluster/coordinator.h"
#include "config/run_config.h"

namespace distbelief {

/// What a coordinator must know of a job, but for whether it has a launcher.
JobRules rules_of_job(const RunConfig& config, const std::string& version);

/// A coordinator's process on the machine of the run's folder.
struct CoordinatorTask {
  std::filesystem::path folder;
  std::string version;
  bool has_launcher = false;
  bool several_hosts = false;  ///< a foreign launcher started processes on other machines
  bool again = false;          ///< the one before was killed: take its place
  int restarts = 0;            ///< how often the job was started again before
  std::function<void(const std::string& line)> log = {};
  std::function<bool()> stop_requested = {};
};

/// Runs the coordinator of a job until the job has ended, or until another coordinator has taken its place (`deposed`).
/// One that has to stop because its store cannot be reached comes back under the next term when it can. Throws Error
/// when there is no way to be a coordinator.
JobResult coordinate_job(const CoordinatorTask& task);

struct GuardTask {
  std::string store;
  std::string version;
  RunConfig place = {};  ///< of this machine: listen, advertise, the files of TLS
  std::function<void(const std::string& line)> log = {};
  std::function<bool()> stop_requested = {};
};

/// Waits beside the job that has this store, wherever its coordinator is, and takes its place when its lease has ended.
/// Returns when the job has ended, when it is told to stop (`deposed`: it was not the coordinator), or when the
/// coordinator is gone for good without having known of this process. Throws InputError as EtcdClient does.
JobResult guard_job(const GuardTask& task);

}  // namespace distbelief
