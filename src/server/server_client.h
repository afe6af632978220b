#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/block_map.h"
#include "server/parameter_server.h"
#include "server/touched_runs.h"
#include "server/wire.h"
#include "tensor/buffer.h"
#include "transport/fabric.h"

namespace distbelief {

/// A worker's way to the servers: what it pushes is cut up among them, what it fetches is put together. A push, a fetch
/// and the worker's own computing go on at the same time: one push and one fetch are on their way at most, and memory
/// is there for a push that is being sent and one that is being added up.
///
/// advance() and wake are for the thread that uses the fabric, all else for the worker's.
class ServerClient {
 public:
  /// Waits for the reply of a server in this process that was asked. To be called once.
  using ReplyHere = std::function<ReplyHead()>;
  struct Server {
    Rank rank = {};
    std::vector<int> blocks = {};  ///< ascending
    /// It lives in this process, so that no link is needed: see ServerPort::begin_here().
    std::function<ReplyHere(const RequestHead&, std::span<const std::byte>, std::span<std::byte>)> here = {};
  };
  struct Options {
    std::uint32_t view = 0;
    std::uint64_t incarnation = 0;
    ClientRole role = ClientRole::worker;
    std::function<void()> wake = {};  ///< called when there is something to send
    /// Of blocks that have two holders: who answers now for what this server of those at the start owned; Rank{}:
    /// somebody will soon; nothing: nobody does any more. What was asked of one that is lost is asked again of that
    /// one; which may be this process, by `here`. Thread-safe.
    std::function<std::optional<Rank>(std::size_t server)> holder = {};
    std::function<ReplyHere(std::size_t server, const RequestHead&, std::span<const std::byte>, std::span<std::byte>)>
        here = {};
  };
  /// `fabric` and `map` are borrowed. With Options::holder the server at place i has view_of_shelf(view, i).
  ServerClient(Fabric& fabric, const BlockMap& map, const std::vector<Server>& servers, Options options);
  ~ServerClient();
  ServerClient(const ServerClient&) = delete;
  ServerClient& operator=(const ServerClient&) = delete;

  /// Moves on what can move on; true when something did.
  bool advance();
  /// For the same thread: the body of a request or a reply is on its way.
  bool in_a_message() const;

  /// Adds the sums of one batch, in parts that each cover the space, to the next push. What was fetched last is what
  /// they were computed from. Gradients are multiplied with `factor`, statistics that are averaged are not.
  void add(std::span<const std::span<const float>> parts, float factor = 1);

  /// Finds which runs a batch touches. Borrows `table` and what this client borrows.
  TouchedRuns touched_runs(const ParameterTable& table) const { return {table, map_, blocks_of_servers_}; }
  /// As add(), of a gradient over the flat space of which only what a batch touches is meant; the rest may hold
  /// anything and counts as 0. Takes time for what is touched. Not for a push that add() has begun, nor the other way
  /// round.
  void add_touched(const TouchedRuns& touched, std::span<const float> gradient, float factor = 1);

  struct Unit {
    PushId id = {};
    SampleRun samples = {};
    float scale = 1;
    std::uint64_t low_water = 0;
    SampleRun lease = {};
    bool wants_values = false;  ///< wait_pushed() brings the values that came of it
    UnitReport done = {};       ///< of a unit before
  };
  struct [[nodiscard]] PushReport {
    Outcome outcome = {};
    ReplyHead::Status status = ReplyHead::Status::done;  ///< the worst that a server said
    double staleness = 0;                                ///< mean over the blocks that it changed
    std::uint64_t staleness_most = 0;
    bool whole = false;  ///< a push: every block took it, and none had it already
  };
  /// Forgets what was added.
  void discard();
  /// Sends what was added, after the push before has been acknowledged; that one's report comes back.
  PushReport push(const Unit& unit, Clock::time_point deadline);
  /// Until every server has acknowledged the push that is on its way; nothing is: done.
  PushReport wait_pushed(Clock::time_point deadline);

  /// Tells the first server that a unit is done, or, in words, that this client cannot go on. Waits for pushes, and for
  /// the answer.
  PushReport report(const UnitReport& done, const std::string& words, Clock::time_point deadline);

  /// Tells all servers that this worker has nothing to push until it pushes again.
  PushReport idle(Clock::time_point deadline);
  /// Tells the first server that nothing more comes from this worker.
  PushReport leave(Clock::time_point deadline);

  // For the client that leads; each waits for the answers.

  /// Tells all servers: flush, end, slow_down or mark.
  PushReport order(RequestHead::Kind kind, float scale, Clock::time_point deadline);
  /// Training begins with these values, of the whole space.
  PushReport set_values(std::span<const float> values, Clock::time_point deadline);
  /// What ParameterServer::save() of each server gives; in the order of the servers.
  /// Status nonfinite: some of their numbers are not finite, and there is nothing.
  PushReport save(std::vector<std::string>& states, Clock::time_point deadline);
  /// Status damaged: a state is not one of its server.
  PushReport restore(const std::vector<std::string>& states, Clock::time_point deadline);

  /// Carries the orders out on the vectors of all servers, after pushes of leases below `low_water` count as taken
  /// everywhere; the dot products replace what is in `dots`, each summed in the order of the servers.
  PushReport run_vectors(std::span<const VectorOrder> orders, std::uint64_t low_water, std::vector<double>& dots,
                         Clock::time_point deadline);
  /// What had crossed links to and from all servers, of all clients, when each of them last answered this one.
  struct Traffic {
    std::uint64_t pushed_bytes = 0;
    std::uint64_t fetched_bytes = 0;
    std::uint64_t order_bytes = 0;  ///< of run_vectors() of this client, with the dot products that came back
    std::uint64_t all() const { return pushed_bytes + fetched_bytes + order_bytes; }
  };
  Traffic traffic() const;

  // Of a worker that is told what to compute; not while it fetches.

  /// Asks the first server for work. With `waits` the answer comes when there is some.
  void begin_asking(bool waits);
  bool asking() const { return asking_; }
  /// Nothing in `work`: there is none now.
  Outcome wait_asked(std::optional<Work>& work, Clock::time_point deadline);

  enum class Freshness {
    any,
    all_newer,  ///< what comes, comes when every block is newer than what was fetched last
  };
  /// Asks for all blocks that are newer than what was fetched last; after a fetch of runs for all blocks, and at once.
  void begin_fetch(Freshness freshness = Freshness::any);
  /// Asks for what a batch touches, whether or not it is newer; take() then brings that, and the rest of the values is
  /// no more of any version. Where a batch touches most of what a server has, all of it comes.
  void begin_fetch_touched(const TouchedRuns& touched, Freshness freshness = Freshness::any);
  bool fetching() const { return fetching_; }
  Outcome wait_fetched(Clock::time_point deadline);
  /// Copies what came with the last fetch, or push that wanted values, that was waited for into the flat space; the
  /// rest of it stays.
  void take(std::span<float> values);
  /// What orders have made of all rates, as servers told last.
  float rate_factor() const { return rate_factor_; }

 private:
  class Asked;
  /// One server and what it is asked.
  struct Place;

  /// Sends what these places are to be asked on one of their channels.
  void submit(std::span<const std::unique_ptr<Place>> places, std::unique_ptr<Asked> Place::*channel);
  Outcome wait(Asked& asked, Clock::time_point deadline);
  /// Of a place: whoever was asked is lost. True when somebody else is asked now, or nobody is left to.
  bool ask_again(std::size_t place, Asked& asked);
  /// On the thread that waits.
  ReplyHere begin_here(std::size_t place, Asked& asked);
  /// Who asks for a change counts, where it may be asked again.
  std::uint64_t next_number() { return options_.holder ? ++changes_ : 0; }
  /// Asks one server, on the channel for changes, and waits.
  PushReport ask(std::unique_ptr<Place>& place, Clock::time_point deadline);

  struct RunsBody {
    std::size_t runs;
    std::size_t bytes;
  };
  /// Makes the body of a push of the runs that were added; nothing, and nothing done, if they are most of it.
  static std::optional<RunsBody> move_runs(Place& place);
  static bool brought_runs(const Place& place);
  static void take_runs(Place& place, std::span<float> values);

  Fabric& fabric_;
  const BlockMap& map_;
  const Options options_;
  std::vector<std::vector<int>> blocks_of_servers_;
  std::vector<std::unique_ptr<Place>> places_;
  int added_ = 0;               ///< batches that were added since the last push
  bool added_is_runs_ = false;  ///< by add_touched()
  bool pushing_ = false;        ///< a push is on its way
  bool fetching_ = false;
  bool asking_ = false;
  std::uint64_t order_bytes_ = 0;
  std::uint64_t changes_ = 0;  ///< that were asked for
  float rate_factor_ = 1;

  std::mutex mutex_;
  std::condition_variable answered_;
};

}  // namespace distbelief
