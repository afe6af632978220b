#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cluster/member.h"
#include "train/process_log.h"
#include "transport/fabric.h"

namespace distbelief {

/// What the coordinator says, made known to the thread that trains: deaths to its fabric, orders to whoever asks.
/// Called on the member's thread; all functions are thread-safe.
class ControlEvents {
 public:
  /// What a loss means to those who live.
  enum class Bond : std::uint8_t {
    all_or_none,  ///< the group cannot go on, so that nobody is waited for any more
    regroups,     ///< the group is over, and the others form a new one of the next view
    each_link,    ///< each link stands for itself
  };
  /// `parts`: workers in a row that hold one copy of the network, and cannot do without each other. `late`: this
  /// process came when the others had begun, and is in no group yet.
  explicit ControlEvents(Bond bond, int parts = 1, bool late = false) : bond_(bond), parts_(parts), late_(late) {}

  void operator()(const MemberEvent& event);

  /// From now on deaths are told to the fabric, and those of before at once. Borrowed until it is set to null.
  void set_fabric(Fabric* fabric);
  /// From now on what happens is written down there. Borrowed.
  void set_log(const ProcessLog* log) { log_ = log; }

  /// This process, or its copy of the network, was asked to leave the others.
  bool told_to_leave() const { return told_to_leave_; }
  /// Somebody ordered a stop.
  bool stop() const { return stop_; }
  /// For Bond::regroups: this process was asked to leave, while the others go on; where a network is cut, as the newest
  /// view says. With others it is a stop.
  bool leaves() const { return leaves_; }
  /// There is no coordinator any more, or it has ended the job; nothing new will be heard.
  bool coordinator_lost() const { return coordinator_gone_; }
  /// The job goes on without this process, which was given up: what others wrote since is not its to write over.
  bool fenced() const { return fenced_; }
  /// Of such a process: it may join once more, as a standby.
  bool comes_again() const { return comes_again_; }

  struct Loss {
    MemberInfo member;
    std::string reason;
    Clock::time_point heard = Clock::now();
  };
  /// Who is dead, in the order in which it became known.
  std::vector<Loss> lost();
  /// Who was lost and why, once that is known: of those that were lost together the first, as others may have followed
  /// from it, and nobody whose death was survived before. What was seen of it, when nobody says more in time.
  std::string explain(const std::string& seen);
  /// Whether all members of lower ranks are lost, or have left.
  bool first_alive(Rank self);

  /// For Bond::regroups: the first view after `number` all of whose members live, as far as is known, and that awaits
  /// nobody. Of two members
  /// that ask, one may get an earlier view, but hears soon that it is over. Waits for it; nothing at the deadline, or
  /// when none can come.
  std::optional<View> next_view(std::uint64_t number, Clock::time_point deadline);
  /// The newest view with members that came since the last that became a group, or are to leave since then, or of which
  /// fewer shall go on, and that awaits nobody; or that one.
  std::uint64_t newest_with_changes();
  std::optional<View> view(std::uint64_t number);
  /// The first that was heard of: those who begin the job together, while later ones may be without some of them. Waits
  /// for it; nothing at the deadline.
  std::optional<View> first_view(Clock::time_point deadline);
  /// Who that is or was.
  std::optional<MemberInfo> find(Rank rank);
  /// Whether the newest view is without it.
  bool is_gone(Rank rank);
  /// What became of the servers so far.
  ServerHistory server_history();
  /// The same without the first so many events.
  std::vector<ServerHistory::Event> server_events(std::size_t from);
  /// Everybody in views after this one, each once; it becomes the newest.
  std::vector<MemberInfo> members_since(std::uint64_t& view);
  /// The members of this view have become a group: that one of them leaves when it is done does not end it. (Before, it
  /// would be waited for in vain.)
  void formed(std::uint64_t number);
  /// Whether a member of the first view is not in the last group any more.
  bool somebody_went();

 private:
  void write_down(const MemberEvent& event) const;
  void heard(const View& view);
  /// Whether a group of the view would differ from that of `formed`, but for who is gone.
  static bool has_changes(const View& view, const View& formed);
  void hear_of_leaving();
  void tell_fabric();
  /// Nobody can tell any more who lives.
  void end_all_waits(const std::string& reason);
  /// Groups of views with members that are gone are over.
  void end_views();
  void lose_those_that_left(const View& view);
  void lose(Rank rank, const std::string& reason);

  const Bond bond_;
  const int parts_;
  const bool late_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Fabric* fabric_ = nullptr;  // these eight: guarded by mutex_
  std::vector<Loss> lost_;
  std::string changed_view_;
  ServerHistory server_history_;
  std::map<std::uint64_t, View> views_;  // by number
  std::set<std::uint64_t> over_;         // of these, those whose groups are over
  std::uint64_t formed_ = 0;             // the last view that became a group
  std::string coordinator_lost_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> leaves_ = false;
  std::atomic<bool> coordinator_gone_ = false;
  std::atomic<bool> fenced_ = false;
  std::atomic<bool> comes_again_ = false;
  std::atomic<bool> told_to_leave_ = false;
  std::atomic<const ProcessLog*> log_ = nullptr;
};

}  // namespace distbelief
