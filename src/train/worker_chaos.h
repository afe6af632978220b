#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "cluster/chaos.h"
#include "cluster/child_process.h"
#include "cluster/member.h"
#include "config/run_config.h"
#include "exec/compute_watch.h"
#include "transport/faulty/faulty_fabric.h"
#include "transport/locked/locked_fabric.h"

namespace distbelief {

/// The part of --chaos that concerns this worker, with real effects: on its links, its connection to the coordinator,
/// its speed and its life. One thread.
class WorkerChaos : private ChaosTools {
 public:
  struct Place {
    int self = 0;
    FaultyFabric* fabric = nullptr;     ///< borrowed; null when no event touches links
    Member* member = nullptr;           ///< borrowed; null for a worker that is a thread or alone
    std::filesystem::path folder = {};  ///< of the run: what happens once is remembered there
    int restarts = 0;  ///< of the job; where the folder is not seen, what happens once happens before the first
    std::function<void(const std::string& text)> note = {};
  };
  WorkerChaos(const RunConfig& config, Place place);

  /// Before each step. `watch` says how long the computation of the last one took; a slow worker then
  /// sleeps, which counts as computing, until that or until `stop`.
  void before_step(const Chaos::Moment& moment, ComputeWatch& watch, const std::function<bool()>& stop);
  /// How many times as long as it should this worker computes, at the run's first step.
  double first_slowness() const { return first_slowness_; }

 private:
  std::function<void()> inject(const Fault& fault) override;
  void cut_control(Clock::time_point until) override;
  void set_slowness(double factor) override { slowness_ = factor; }
  void kill() override;
  void stop(std::chrono::milliseconds duration) override;
  void kill_coordinator(const ChaosEvent& event) override;
  void fill_disk(Clock::time_point until) override;

  const Place place_;
  double first_slowness_ = 1;
  double slowness_ = 1;
  double computed_ = 0;  // seconds, until the last step
  std::unique_ptr<ChildProcess> waker_;
  Chaos chaos_;
};

/// `fabric`, with links that can fail when the configuration's --chaos wants that; else as it is. `faulty` is where the
/// links can be reached then, or null.
std::unique_ptr<Fabric> with_faults(std::unique_ptr<Fabric> fabric, const RunConfig& config, FaultyFabric*& faulty);

/// `fabric`, for the several threads that use it where parts of a network talk to each other, and at the same time to
/// servers or to the same parts of other copies; else as it is, and `locked` is null.
std::unique_ptr<Fabric> with_lock(std::unique_ptr<Fabric> fabric, const RunConfig& config, LockedFabric*& locked);

}  // namespace distbelief
