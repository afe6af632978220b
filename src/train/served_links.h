#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "server/link_thread.h"
#include "server/ordered_server.h"
#include "server/placement.h"
#include "server/replica_receiver.h"
#include "server/replica_sender.h"
#include "server/server_client.h"
#include "server/server_port.h"
#include "train/served_team.h"

namespace distbelief {

/// What a process of a job with parameter servers has of them: the shelves it holds, if it is a server, and ways to all
/// blocks that concern it, for a worker and for who leads. Where a network is cut, the parameters of each part are a
/// space of their own, with blocks on all servers. Works on threads of its own until it is destroyed.
///
/// Where shelves have two holders (ServedTeam::routes), what a lost server held is answered for by its backups, and new
/// backups are made, as soon as the control plane tells of the loss.
class ServedLinks {
 public:
  /// What the leader, whose books stand behind it, does with what workers say. All thread-safe. Where a network is cut
  /// they hear from the first part of each copy.
  struct Hooks {
    OrderedServer::Heard heard = {};  ///< these three also where the first shelf has its backup: see OrderedServer
    std::function<std::string()> save_heard = {};
    std::function<void(const std::string&)> restore_heard = {};
    std::function<std::optional<Work>(const RequestHead&)> work = {};  ///< see ServerPort
    std::function<void(std::uint64_t)> lost = {};                      ///< a worker, by incarnation
    /// What is to be leased, for a coordinator that came back.
    std::function<LeaseTable::Options(const LeaseQuestion&)> plan = {};
  };
  /// The parameters of a part of the network.
  struct Space {
    const ParameterTable* table = nullptr;  ///< null: of no concern here
    std::span<const float> values = {};     ///< where they begin, for a server
  };
  /// All but `spaces`, `options` and `hooks` are borrowed; tables too, values only now. A space for each part.
  ServedLinks(const ServedTeam& team, const std::vector<Space>& spaces, const UpdateRule& rule,
              const ParameterServer::Options& options, Hooks hooks);
  ~ServedLinks();

  /// This process's own, of the first part.
  ParameterServer& server() { return *find_shelf(0, team_.number())->server; }
  /// Training is over on this process's servers.
  void end_server();
  /// What updates are made of has changed by other means than requests: they may be due.
  void server_changed();
  /// From now on nobody waits at this process's servers.
  void let_all_go();
  ServerClient& worker() { return *client_; }
  ServerClient& leader(std::size_t part = 0) { return *areas_.at(part)->leader; }
  /// How a part's parameters are cut, and which of the blocks each server has at the beginning.
  int servers() const { return team_.servers; }
  const BlockMap& map(std::size_t part) const { return areas_.at(part)->map; }
  std::vector<int> blocks_of(std::size_t part, int server) const { return areas_.at(part)->placement.blocks_of(server); }

  // A server's, where shelves have two holders.

  /// This server answers for the first shelf now, and so leads: whoever led is lost.
  bool leads();
  /// Opens the ways to all servers that a leader needs.
  void begin_leading();
  /// Keeps words for whoever leads next; the last are what counts. Does not wait until they are there; all that is
  /// acknowledged to anybody afterwards is there after them. For the leader.
  void keep_note(const std::string& words) { (void)tell_backup(RequestHead::Kind::note, words); }
  /// What the books are before anything is heard, and the first words; waits until they are there. For the leader.
  void keep_beginning(const std::string& books, const std::string& words);
  /// What was kept; empty: nothing.
  std::string note();
  /// Why this process cannot answer for what it should; empty: it can.
  std::string broken();
  /// It has all that it is to hold, as far as it knows: the next one may die.
  bool settled();
  /// What became since the last call of the parameters of servers that were lost, in words: all of it for the leader,
  /// and for others what they alone know.
  std::vector<std::string> take_news();

 private:
  /// The blocks of a part, and the leader's way to them.
  struct Area {
    Area(const Space& space, const ServedTeam& team);
    const ParameterTable& table;
    const BlockMap map;
    const Placement placement;
    std::unique_ptr<ServerClient> leader;
  };
  /// Blocks that one server owned at the start, as far as this process holds them.
  struct Shelf {
    std::size_t part = 0;
    int number = 0;
    std::unique_ptr<ParameterServer> server;
    std::unique_ptr<OrderedServer> ordered;
    std::unique_ptr<ReplicaReceiver> receiver;     ///< these three: of the thread of the fabric; a backup's
    std::unique_ptr<ServerPort> port;              ///< a primary's
    std::unique_ptr<ReplicaSender> sender;         ///< likewise; after the port, whose memory it sends from
    std::atomic<ServerPort*> open_port = nullptr;  ///< the port, for all threads
  };
  /// A worker that is lost, and the positions at which shelves have fenced it.
  struct Fence {
    std::uint64_t incarnation = 0;
    std::vector<std::pair<Shelf*, std::uint64_t>> positions = {};
  };

  bool replicated() const { return team_.routes != nullptr; }
  Shelf* find_shelf(std::size_t part, int number);
  Shelf& make_shelf(std::size_t part, int number, std::span<const float> values, OrderedServer::Options options);
  void open_port(Shelf& shelf);
  std::unique_ptr<ServerClient> client_of(std::size_t part, ClientRole role);
  void answer(const LeaseQuestion& question);
  /// See ServerClient::Options::holder; Rank{}: it is not ready yet.
  std::optional<Rank> holder_of(std::size_t shelf);
  bool advance();
  bool in_a_message();
  /// Lets the thread of the fabric do something, and waits for it. For the thread that watches.
  void on_link_thread(const std::function<void()>& what);
  /// Tells the backup of the first shelf. The position of that in its log.
  std::uint64_t tell_backup(RequestHead::Kind kind, const std::string& body);

  void watch();
  /// Takes over what was with servers that are lost.
  void watch_for_lost_servers();
  void promote(Shelf& shelf, std::optional<Rank> backup);
  void tell_news(const Ownership& now);
  void tell_whole_copies();
  /// Fences workers that are gone, and says how far they came; where servers are inside, lets nobody wait for them.
  void watch_for_lost_workers();
  std::uint64_t fence(Shelf& shelf, std::uint64_t incarnation);
  /// How far pushes of each lease have come, in all blocks of this process.
  std::vector<PushId> open_leases() const;

  const ServedTeam& team_;
  const UpdateRule& rule_;
  const ParameterServer::Options options_;
  const Hooks hooks_;
  LinkThread link_;
  std::vector<std::unique_ptr<Area>> areas_;  ///< of each part; null: of no concern here
  std::unique_ptr<ServerClient> client_;
  mutable std::mutex shelves_mutex_;
  std::vector<std::unique_ptr<Shelf>> shelves_;  // guarded by shelves_mutex_; what is there stays
  std::string broken_;                           // these two: guarded by shelves_mutex_
  std::vector<std::string> news_;
  std::mutex todo_mutex_;
  std::vector<std::function<void()>> todo_;  // guarded by todo_mutex_: for the thread of the fabric
  std::atomic<bool> has_todo_ = false;
  std::vector<Shelf*> moving_;  // these two: of the thread of the fabric
  std::vector<ServerClient*> clients_;
  std::optional<Ownership> held_;  // these three: of the thread that watches: as this process has acted on it
  std::vector<ServedTeam::LostWorker> lost_workers_;
  std::vector<const Shelf*> incomplete_;  // copies that are being made here
  std::vector<Fence> fences_;  // that not every backup has
  std::jthread watching_;  ///< a server's; last: it stops before the rest goes
};

}  // namespace distbelief
