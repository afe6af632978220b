#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace distbelief {

/// Which servers hold each shelf: some blocks of the parameters that move together, for good. A shelf's primary answers
/// for it, its backup repeats what the primary does and has all that was ever acknowledged.
///
/// When a server is lost its backups become primaries at once. All else is a plan: when servers come, go or are lost,
/// everybody works out alike who shall hold what (even shares, few moves, backups on another host where there is one),
/// and primaries get there in steps, each of which is told to all when it is done: a third server is `coming`, as it
/// gets a copy while the two go on, and then becomes the backup; primary and backup change places; a backup is let go.
/// So at every moment all that was acknowledged is with the primary and with the backup, if there is one.
///
/// A function of the servers at the start and of what became of them in which order, so that every process has the same
/// table. The primary of the first shelf leads, and is planned to change only when it leaves. Plain data; reading is
/// thread-safe.
class Ownership {
 public:
  static constexpr int kNobody = -1;
  struct Holders {
    int primary = kNobody;  ///< kNobody: all that it held is lost
    int backup = kNobody;
    int coming = kNobody;  ///< gets a copy, and is then the backup
    friend bool operator==(const Holders&, const Holders&) = default;
  };
  /// What a primary has to do next.
  enum class Step : std::uint8_t {
    none,
    copy,  ///< to who is coming, if somebody is
    swap,  ///< change places with the backup
    drop,  ///< let the backup go
  };

  /// Servers are numbered from 0, and shelf i begins with server i modulo their number. `hosts` says where each server
  /// is; `copies` is 1 or 2, of which there is one while there is one server.
  Ownership(std::vector<std::string> hosts, int copies, int shelves);

  int shelves() const { return static_cast<int>(holders_.size()); }
  const Holders& of(int shelf) const { return holders_.at(static_cast<std::size_t>(shelf)); }
  Step step(int shelf) const;
  /// Who is to get a copy next, or gets it.
  int next_copy(int shelf) const;
  /// How often it was copied from server to server.
  std::uint64_t copied(int shelf) const { return copied_.at(static_cast<std::size_t>(shelf)); }
  /// Who leads is who answers for the first shelf, whose backup knows all that a leader knows.
  int leader() const { return of(0).primary; }
  bool lives(int server) const { return is_known(server) && servers_[static_cast<std::size_t>(server)].lives; }
  bool leaves(int server) const { return is_known(server) && servers_[static_cast<std::size_t>(server)].leaves; }
  /// Numbers of servers that live.
  std::vector<int> living() const;
  bool holds_something(int server) const;
  /// Everything is where it shall be.
  bool settled() const;
  /// Servers have come or gone by request: until then nothing moves but what must.
  bool evens_out() const { return evens_out_; }
  /// How often a server was lost, joined or was to leave: of two tables with the same number both plan the same.
  std::uint64_t changes() const { return changes_; }

  // What became of servers.

  /// Nothing changes when it was lost before.
  void lose(int server);
  /// Numbers may be left out.
  void join(int server, const std::string& host);
  /// It shall hold nothing any more. Not the last that stays: and when that is lost, those who were to leave and still
  /// hold something stay after all.
  void leave(int server);
  /// A step is done: these hold the shelf now.
  void move(int shelf, int primary, int backup);

 private:
  struct Server {
    std::string host = {};
    bool lives = false;
    bool leaves = false;
  };
  bool is_known(int server) const { return server >= 0 && server < static_cast<int>(servers_.size()); }
  bool stays(int server) const { return lives(server) && !leaves(server); }
  std::vector<int> staying() const;

  // Of the plan.
  void plan();
  void plan_primaries(const std::vector<int>& servers);
  void plan_backups(const std::vector<int>& servers);
  void even_out_primaries(const std::vector<int>& servers);
  void even_out_backups(const std::vector<int>& servers);
  int planned(int server, int Holders::*as) const;
  int choose_backup(int primary, const std::vector<int>& servers) const;
  bool same_host(int a, int b) const;
  void begin_copies();

  int copies_;
  bool evens_out_ = false;
  std::vector<Server> servers_;
  std::vector<Holders> holders_;
  std::vector<Holders> target_;        ///< of each shelf; who is coming has no meaning here
  std::vector<std::uint64_t> copied_;  ///< of each shelf
  std::uint64_t changes_ = 0;
};

}  // namespace distbelief
