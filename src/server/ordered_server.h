#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/parameter_server.h"
#include "server/replica_log.h"
#include "server/wire.h"

namespace distbelief {

/// A ParameterServer as one of the two holders of its blocks. The primary makes one change after the other and writes
/// each into a log; the backup repeats them in that order. As what a change does depends on nothing but the state and
/// the request, both have the same bits: values, slots, leases, what is gathered, vectors, who is fenced. What a client
/// was answered last is remembered too, so that a change that it sends again, to whoever holds the blocks then, is made
/// once. Without `replicated` changes meet only where they touch the same block, and nothing is logged. Thread-safe.
class OrderedServer {
 public:
  /// Called for each change after it was made, and before its client hears of that; on the backup too, in the same
  /// order. `words` are those of a report.
  using Heard = std::function<void(const RequestHead& request, const ReplyHead& reply, std::string_view words)>;
  struct Options {
    bool replicated = false;
    bool whole = true;                ///< of a backup: it begins with the state that its primary begins with
    std::optional<Rank> backup = {};  ///< of a primary, whose backup begins with the same state
    std::function<void()> wake = {};  ///< called when there is something to send to a backup
    Heard heard = {};
    /// What `heard` has made of all that it heard, for a new backup.
    std::function<std::string()> save_heard = {};
    std::function<void(const std::string&)> restore_heard = {};
  };
  /// `server` is borrowed.
  OrderedServer(ParameterServer& server, Options options);

  ParameterServer& server() { return server_; }
  const ParameterServer& server() const { return server_; }
  /// What the backup is told.
  ReplicaLog& log() { return *main_.load(); }

  /// See distbelief::answer(). The reply may be given away once it is durable(); also one that only tells what there
  /// is, so that nobody ever sees what is lost with this process.
  ReplyHead answer(const RequestHead& request, std::span<const std::byte> in, std::span<std::byte> out,
                   std::uint64_t& position);
  /// What was kept last by a request of kind note.
  std::string note() const;

  /// All who have to have it have what was done up to there.
  bool durable(std::uint64_t position) const;
  /// False at the deadline.
  bool wait_until_durable(std::uint64_t position, Clock::time_point deadline);

  // A primary's.

  /// The backup is lost. `next`, if there is one, gets a copy of all.
  void change_backup(std::optional<Rank> next);
  /// Somebody is to be a holder besides the backup: gets a copy of all, and then hears of what is done. Once it is
  /// whole nothing is durable without it. What it is told.
  ReplicaLog& begin_copy(Rank to);
  /// Null: nobody is.
  ReplicaLog* copying() { return next_; }
  /// Who got the copy is the backup from now on. The one before, if it lives, is told so: see old_log().
  void adopt_copy();
  /// Nothing of what copying() has is being sent any more.
  void end_copy();
  /// There is no backup any more; it lives, and is told so.
  void let_backup_go();
  /// What a backup before still has to hear: until end_old_log() nothing that is in it is durable without it, as its
  /// bodies are borrowed. Null: there is none.
  ReplicaLog* old_log() { return old_; }
  void end_old_log() { old_ = nullptr; }

  // Of one that becomes the other. Nobody asks it anything meanwhile.

  /// Of a backup that is whole. `backup` has the same state.
  void become_primary(std::optional<Rank> backup);
  /// Of a primary whose backup, which has the same state, takes its place.
  void become_backup();

  // A backup's.

  /// Whether this can be something that a primary tells.
  bool is_for_backup(const ReplicaHead& head) const;
  /// False: it makes no sense, and this is no backup of anything any more.
  bool repeat(const ReplicaHead& head, std::span<const std::byte> body);
  /// It has all that was ever acknowledged.
  bool whole() const;
  /// The primary has said that another is in its place.
  bool is_dismissed() const { return dismissed_; }

 private:
  /// What a client asked for last, and the answer.
  struct Answered {
    std::uint64_t number = 0;
    ReplyHead reply = {};
    std::string body = {};
  };
  ReplyHead change_locked(const RequestHead& request, std::span<const std::byte> in, std::span<std::byte> out);
  ReplyHead make_change(const RequestHead& request, std::span<const std::byte> in, std::span<std::byte> out);
  std::string copy_locked();
  void become_locked(const std::string& copy);
  ReplicaLog* make_log(std::optional<Rank> backup, std::uint64_t last);
  void retire_main_locked(ReplicaLog* next);

  ParameterServer& server_;
  const Options options_;
  std::vector<std::unique_ptr<ReplicaLog>> logs_;  // all that there were: who sends may still look at one
  std::atomic<ReplicaLog*> main_;                  // these four change while order_ is held
  std::atomic<ReplicaLog*> next_ = nullptr;
  std::atomic<ReplicaLog*> old_ = nullptr;
  std::atomic<std::uint64_t> old_last_ = 0;  ///< the last position in the old one
  std::atomic<bool> dismissed_ = false;
  mutable std::mutex order_;                    // held by each change
  std::map<std::uint64_t, Answered> answered_;  // guarded by order_, as all below: by incarnation
  std::string note_;
  bool whole_;
  std::string copy_;  ///< the pieces so far
  std::vector<std::byte> scratch_;
};

}  // namespace distbelief
