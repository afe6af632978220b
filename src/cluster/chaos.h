#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "cluster/chaos_effects.h"

namespace distbelief {

/// In a run's folder: which events have happened that happen once, a line each that ends with the event.
inline constexpr char kChaosMarksFile[] = "chaos-done";

/// Carries out a script on one worker. Lasting effects begin and end with their steps, also when a run is resumed in
/// the middle of them. What happens once in a run (a kill, a cut, a stop) is written down before it happens, so that a
/// run that is resumed or started again passes the same step in peace. One thread.
class Chaos {
 public:
  struct Place {
    int self = 0;  ///< this worker's number
    /// Where is written down what has happened; empty: nothing is.
    std::filesystem::path marks = {};
    bool once_is_past = false;  ///< what happens once has happened: the job was started again, and nobody wrote it down
    /// Called for what is done to this worker, before it is done: "chaos: worker 1 killed at step 200".
    std::function<void(const std::string& text)> note = {};
  };
  /// `tools` is borrowed.
  Chaos(ChaosScript script, Place place, ChaosTools& tools);

  struct Moment {
    std::int64_t step = 1;  ///< counted from 1
    double share = 0;       ///< of the run's samples that were trained on before it, by anybody
  };
  /// To be called before each step. Throws FileError when a mark cannot be written.
  void before_step(const Moment& moment);

 private:
  struct Running {
    std::function<void()> end = {};
    bool begun = false;
  };
  bool happened(const ChaosEvent& event) const;
  bool concerns(const ChaosEvent& event) const;
  void begin(const ChaosEvent& event, Running& running, const Moment& moment);
  void end(const ChaosEvent& event, Running& running, std::int64_t step);
  void mark(const ChaosEvent& event);
  std::string mark_of(const ChaosEvent& event) const;
  void say(const ChaosEvent& event, const std::string& when) const;

  const ChaosScript script_;
  const Place place_;
  ChaosTools& tools_;
  std::vector<Running> running_;  // of each event
  std::set<std::string> marks_;
};

}  // namespace distbelief
