#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "cluster/chaos_script.h"
#include "cluster/chaos_words.h"
#include "transport/faulty/faulty_fabric.h"

namespace distbelief {

/// What a worker can do to itself.
class ChaosTools {
 public:
  virtual ~ChaosTools() = default;
  /// On the links of this worker; what it returns lifts the fault again.
  virtual std::function<void()> inject(const Fault& fault) = 0;
  /// Nothing goes to the coordinator or comes from it until then, and nothing is closed.
  virtual void cut_control(Clock::time_point until) = 0;
  /// Each step's computation takes so many times as long from now on.
  virtual void set_slowness(double factor) = 0;
  /// SIGKILL to this process. Returns only in tests.
  virtual void kill() = 0;
  /// SIGSTOP to this process, and SIGCONT later.
  virtual void stop(std::chrono::milliseconds duration) = 0;
  /// SIGKILL to the coordinator, once for each event, however many workers ask for it.
  virtual void kill_coordinator(const ChaosEvent& event) = 0;
  /// No checkpoint of this process can be written until then, as if the disk was full.
  virtual void fill_disk(Clock::time_point until) = 0;
};

/// A kind of thing that can go wrong: how it is written, and what a worker does about it. To add one is to add a row to
/// the table in chaos_effects.cc.
struct ChaosEffect {
  std::string_view name;       ///< "slow"
  std::string_view arguments;  ///< for people: "xF"
  bool for_workers = true;
  bool for_links = false;
  bool for_servers = false;
  bool for_coordinator = false;
  bool for_disk = false;
  enum class When : std::uint8_t {
    during,  ///< in every step from the first to the last of the event
    once,    ///< at its step, or at the first when none is said; once in a run, also when that is resumed
    at_step  ///< the same, but a step must be said
  };
  When when = When::during;
  /// Reads what stands between subject and WHEN.
  void (*read)(ChaosWords& words, ChaosEvent& event);
  /// Whether it cannot be done to a worker that is a thread.
  bool (*needs_process)(const ChaosEvent& event);
  /// What was done, for people, without its subject: "killed". Called before begin().
  std::string (*deed)(const ChaosEvent& event);
  /// Makes it happen on worker `self`, which need not be the subject: who is not concerned does nothing. What it
  /// returns, if anything, ends it.
  std::function<void()> (*begin)(const ChaosEvent& event, int self, ChaosTools& tools);
};

std::span<const ChaosEffect> chaos_effects();

/// "worker 1", "link 0-2".
std::string describe(const ChaosSubject& subject);

}  // namespace distbelief
