#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
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

/// Into how many shelves so many floats are cut: see ServedLinks::shelves(). Where a network is cut, those of each
/// part.
int shelves_of(const ServedTeam& team, std::int64_t floats);

/// What a process of a job with parameter servers has of them: the shelves it holds, if it is a server, and ways to all
/// blocks that concern it, for a worker and for who leads. Where a network is cut, the parameters of each part are a
/// space of their own, with blocks on all servers. Works on threads of its own until it is destroyed.
///
/// Where shelves have two holders (ServedTeam::routes), what a lost server held is answered for by its backups, and new
/// backups are made, as soon as the control plane tells of the loss. Where servers come and go, shelves move to and
/// from them in the steps of Ownership while training goes on (served_moves.cc).
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

  /// That have entered what this server holds: the most of any of it.
  std::uint64_t pushes();
  /// Training is over on this process's servers.
  void end_server();
  /// What updates are made of has changed by other means than requests: they may be due.
  void server_changed();
  /// From now on nobody waits at this process's servers.
  void let_all_go();
  ServerClient& worker() { return *client_; }
  ServerClient& leader(std::size_t part = 0) { return *areas_.at(part)->leader; }
  /// How a part's parameters are cut, and which of the blocks are on which of its shelves: of each server, or, where
  /// they may move, of several for each.
  int shelves() const { return shelves_of_part_; }
  const BlockMap& map(std::size_t part) const { return areas_.at(part)->map; }
  std::vector<int> blocks_of(std::size_t part, int shelf) const { return areas_.at(part)->placement.blocks_of(shelf); }

  // A server's, where shelves have two holders.

  /// This server answers for the first shelf now, and so leads, unless it has given that up.
  bool leads();
  /// Opens the ways to all servers that a leader needs.
  void begin_leading();
  /// This server leads, and leaves: another could lead in its place now, and waits for give_up_lead().
  bool is_to_give_up_lead() const { return lead_ == Lead::wanted; }
  /// This server writes nothing more into the run's folder, and keeps no more notes, unless it comes to lead again.
  void give_up_lead();
  /// It has given up the lead, and no other has it yet.
  bool nobody_leads() const { return lead_ == Lead::given_up; }
  /// Keeps words for whoever leads next; the last are what counts. Does not wait until they are there; all that is
  /// acknowledged to anybody afterwards is there after them. For the leader.
  void keep_note(const std::string& words) { (void)tell_backup(RequestHead::Kind::note, words); }
  /// What the books are before anything is heard, and the first words; waits until they are there. For the leader.
  void keep_beginning(const std::string& books, const std::string& words);
  /// What was kept; empty: nothing.
  std::string note();
  /// Why this process cannot answer for what it should; empty: it can.
  std::string broken();
  /// All is where it is to be, as far as this server knows: the next one may die.
  bool settled();
  /// It was asked to leave, and holds nothing any more.
  bool may_leave();
  /// Bytes of parameters that were copied from server to server so far, without what else belongs to them.
  std::uint64_t bytes_moved() const;
  /// What became since the last call of the parameters of servers that were lost, in words: all of it for the leader,
  /// and for others what they alone know.
  std::vector<std::string> take_news();

 private:
  /// The blocks of a part, and the leader's way to them.
  struct Area {
    Area(const Space& space, const ServedTeam& team, int shelves);
    const ParameterTable& table;
    const BlockMap map;
    const Placement placement;
    std::unique_ptr<ServerClient> leader;
  };
  /// Blocks that move together, as far as this process holds them or has held them.
  struct Shelf {
    int number = 0;                           ///< of the shelves of all parts, part by part
    std::unique_ptr<ParameterServer> server;  ///< these two: null when it is not held any more
    std::unique_ptr<OrderedServer> ordered;
    std::unique_ptr<ReplicaReceiver> receiver;     ///< these seven: of the thread of the fabric; a backup's
    std::unique_ptr<ServerPort> port;              ///< of one that is a primary, or was; made under shelves_mutex_
    std::unique_ptr<ReplicaSender> sender;         ///< a primary's; after the port, whose memory it sends from
    std::unique_ptr<ReplicaSender> copy_sender;    ///< likewise: to who is coming
    std::unique_ptr<ReplicaSender> old_sender;     ///< likewise: to a backup that is let go
    std::map<int, std::uint32_t> sent_turns;       ///< these two: by the other holder's rank, from which turn on the
    std::map<int, std::uint32_t> heard_turns;      ///< next channel to it or from it counts
    std::atomic<ServerPort*> open_port = nullptr;  ///< the port, for all threads, while it answers
    int follows = Ownership::kNobody;              ///< these three: of the thread that watches: who is repeated
    bool hands_over = false;                       ///< it answers nobody, as the backup is to do that
    Clock::time_point told_at = {};                ///< when a step was last said to be done
  };
  /// Of who answers for the first shelf. It hands it over only when the thread that leads has finished what it must not
  /// leave half done; until all know of it, nobody leads.
  enum class Lead : std::uint8_t { kept, wanted, given_up };
  /// A worker that is lost, and the positions at which shelves have fenced it.
  struct Fence {
    std::uint64_t incarnation = 0;
    std::vector<std::pair<Shelf*, std::uint64_t>> positions = {};
  };

  bool replicated() const { return team_.routes != nullptr; }
  /// What this process holds, or has held.
  Shelf* find_shelf(int number);
  Shelf& make_shelf(int number, std::span<const float> values, OrderedServer::Options options);
  /// These three: of a shelf by its number among those of all parts.
  int shelf_count() const { return shelves_of_part_ * team_.parts; }
  std::size_t part_of(int number) const { return static_cast<std::size_t>(number / shelves_of_part_); }
  std::int64_t bytes_of(int number) const {
    return areas_.at(part_of(number))->placement.bytes_of(number % shelves_of_part_);
  }
  /// By which the messages of a shelf are told from others'; of a part's first shelf, those of its clients.
  std::uint32_t view_of(int number) const;
  void open_port(Shelf& shelf);
  /// For the thread of the fabric, or before it begins.
  std::unique_ptr<ServerClient> client_of(std::size_t part, ClientRole role);
  /// See ServerClient::Options::holder; Rank{}: it is not ready yet.
  std::optional<Rank> holder_of(int number);
  bool advance();
  bool in_a_message();
  /// Lets the thread of the fabric do something, and waits for it. For the thread that watches.
  void on_link_thread(const std::function<void()>& what);

  /// Of servers inside workers: nobody need wait for anything here any more.
  bool is_over();
  void watch();

  // served_links_lead.cc

  void answer(const LeaseQuestion& question);
  /// Tells the backup of the first shelf. The position of that in its log.
  std::uint64_t tell_backup(RequestHead::Kind kind, const std::string& body);
  /// Of the first shelf false until the thread that leads has given that up.
  bool may_hand_over(const Shelf& shelf);

  // served_moves.cc

  /// Holds what it is to hold, and does what is to be done next with it.
  void watch_shelves();
  void hold_as_in(const Ownership& now, int number);
  void go_on_as_primary(Shelf& shelf, const Ownership& now);
  void promote(Shelf& shelf, std::optional<Rank> backup);
  void demote(Shelf& shelf, int primary);
  /// Begins to get the copies that it is to get.
  void follow_who_is_due(const Ownership& now);
  void begin_to_follow(int number, int primary);
  /// Whom it follows has said its last word about it, or is lost.
  static bool is_left_by_its_primary(const Shelf& shelf, const Ownership& now);
  /// Of one that answers for a shelf: what is the next step, as far as it can be done now.
  void take_step(Shelf& shelf, const Ownership& now);
  void stop_answering(Shelf& shelf);
  void answer_again(Shelf& shelf);
  /// Whoever came and whoever is lost, whatever the primary before has heard of it.
  void admit_and_fence(Shelf& shelf);
  void say_moved(Shelf& shelf, int primary, int backup);
  void forget_old_backup(Shelf& shelf);
  /// What others hold now, and this process not any more.
  void let_go_of_the_rest(const Ownership& now);
  void drop(Shelf& shelf);
  /// These four: for the thread of the fabric. Channels of the same two holders begin where the one before ended.
  std::unique_ptr<ReplicaSender> sender_of(Shelf& shelf, ReplicaLog& log);
  void end(Shelf& shelf, std::unique_ptr<ReplicaSender>& sender);
  void begin_to_hear(Shelf& shelf, Rank primary);
  void end_hearing(Shelf& shelf);
  void tell_news(const Ownership& now);
  void tell_of_copies(const Ownership& now);
  /// When servers have come or gone and all is where it is to be; in words for the leader only.
  void tell_shares(const Ownership& now);
  /// Who came, and is not needed to hold anything.
  void tell_idle(const Ownership& now);
  std::uint64_t bytes_moved(const Ownership& now) const;

  // served_links_workers.cc

  /// Lets in who came.
  void watch_for_newcomers();
  /// If it came later, and has the part that the shelf is of.
  void admit(Shelf& shelf, const ServedTeam::LostWorker& worker);
  /// Those of which this process is the primary; and the same with those that it is about to hand over.
  std::vector<Shelf*> answering_shelves();
  std::vector<Shelf*> primary_shelves();
  /// Fences workers that are gone, and says how far they came.
  void watch_for_lost_workers(const std::vector<ServedTeam::LostWorker>& lost_workers);
  std::uint64_t fence(Shelf& shelf, std::uint64_t incarnation);
  /// The worker has, or had, a part that the shelf is of: updates wait for so many workers of that part.
  bool concerns(const Shelf& shelf, Rank worker) const;
  /// How far pushes of each lease have come, in all blocks of this process; nothing: it has none.
  std::optional<std::vector<PushId>> open_leases() const;

  const ServedTeam& team_;
  int shelves_of_part_;
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
  std::atomic<Lead> lead_ = Lead::kept;
  std::vector<Shelf*> moving_;  // these three: of the thread of the fabric
  std::vector<ServerClient*> clients_;
  std::set<int> linked_;           // ranks of servers that may be spoken to
  std::optional<Ownership> held_;  // these nine: of the thread that watches: as this process has acted on it
  std::size_t seen_events_ = 0;    // that are in held_
  std::set<int> known_servers_;    // the same as linked_
  std::set<int> due_to_follow_;    // shelves
  std::uint64_t told_bytes_ = 0;   // of bytes_moved()
  std::set<int> idle_told_;
  std::vector<ServedTeam::LostWorker> lost_workers_;
  std::vector<ServedTeam::LostWorker> late_workers_;  // that came, gone or not
  std::vector<Fence> fences_;                         // that not every backup has
  Clock::time_point said_ready_at_ = {};
  std::jthread watching_;  ///< a server's; last: it stops before the rest goes
};

}  // namespace distbelief
