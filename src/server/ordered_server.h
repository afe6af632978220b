#pragma once

#include <functional>
#include <map>
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
  ReplicaLog& log() { return log_; }

  /// See distbelief::answer(). The reply may be given away once log().durable(position); also one that only tells what
  /// there is, so that nobody ever sees what is lost with this process.
  ReplyHead answer(const RequestHead& request, std::span<const std::byte> in, std::span<std::byte> out,
                   std::uint64_t& position);
  /// What was kept last by a request of kind note.
  std::string note() const;

  /// A primary's: its backup is lost. `next`, if there is one, gets a copy of all.
  void change_backup(std::optional<Rank> next);

  // A backup's.

  /// Whether this can be something that a primary tells.
  bool is_for_backup(const ReplicaHead& head) const;
  /// False: it makes no sense, and this is no backup of anything any more.
  bool repeat(const ReplicaHead& head, std::span<const std::byte> body);
  /// It has all that was ever acknowledged.
  bool whole() const;

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

  ParameterServer& server_;
  const Options options_;
  ReplicaLog log_;
  mutable std::mutex order_;                    // held by each change
  std::map<std::uint64_t, Answered> answered_;  // guarded by order_, as all below: by incarnation
  std::string note_;
  bool whole_;
  std::string copy_;  ///< the pieces so far
  std::vector<std::byte> scratch_;
};

}  // namespace distbelief
