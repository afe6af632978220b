#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cluster/member.h"
#include "train/process_log.h"
#include "transport/fabric.h"

namespace distbelief {

/// What the coordinator says, made known to the thread that trains: deaths to its fabric, orders to whoever asks.
/// Called on the member's thread; all functions are thread-safe.
class ControlEvents {
 public:
  /// Whether a group that lost one of its members cannot go on, so that nobody is waited for any more; otherwise each
  /// link stands for itself.
  enum class Bond : std::uint8_t { all_or_none, each_link };
  /// `parts`: workers in a row that hold one copy of the network, and cannot do without each other.
  explicit ControlEvents(Bond bond, int parts = 1) : bond_(bond), parts_(parts) {}

  void operator()(const MemberEvent& event);

  /// From now on deaths are told to the fabric, and those of before at once. Borrowed until it is set to null.
  void set_fabric(Fabric* fabric);
  /// From now on what happens is written down there. Borrowed.
  void set_log(const ProcessLog* log) { log_ = log; }

  /// Somebody ordered a stop.
  bool stop() const { return stop_; }
  /// There is no coordinator any more, or it has ended the job; nothing new will be heard.
  bool coordinator_lost() const { return coordinator_gone_; }
  /// The coordinator gave this process up, and the job goes on without it.
  bool given_up() const { return given_up_; }
  /// Who is dead, in the order in which it became known.
  std::vector<Rank> lost();
  /// Why the first member was lost, once that is known; what was seen of it, when nobody says more in time.
  std::string explain(const std::string& seen);
  /// Whether all members before `position` are lost.
  bool first_alive(int position);

 private:
  void write_down(const MemberEvent& event) const;
  void tell_fabric();
  /// Nobody can tell any more who lives.
  void end_all_waits(const std::string& reason);
  void lose_those_that_left(const View& view);
  void lose(Rank rank, const std::string& reason);

  const Bond bond_;
  const int parts_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Fabric* fabric_ = nullptr;                        // these six: guarded by mutex_
  std::vector<std::pair<Rank, std::string>> lost_;  // with the reason
  std::string changed_view_;
  View first_view_, last_view_;
  std::string coordinator_lost_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> coordinator_gone_ = false;
  std::atomic<bool> given_up_ = false;
  std::atomic<const ProcessLog*> log_ = nullptr;
};

}  // namespace distbelief
