#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <thread>

#include "base/test_deadline.h"
#include "params/update_rule.h"
#include "train/served_links.h"
#include "transport/local/local_fabric.h"

namespace distbelief {

/// For tests: workers and servers on threads of this process, which die when the test says so, and come and go. What
/// each process hears of the others it hears from here.
class ServedTestJob {
 public:
  struct Options {
    int workers = 3;
    int servers = 2;
    std::int64_t floats = 20'000;
    int copies = 2;
    int newcomers = 0;    ///< servers, or workers with one inside, that may join
    bool inside = false;  ///< a server is inside each worker
    int parts = 1;        ///< of a network that is cut, equally large; the workers of a copy have one after the other
  };
  ServedTestJob(int workers, int servers, std::int64_t floats, const ParameterServer::Options& options)
      : ServedTestJob({.workers = workers, .servers = servers, .floats = floats}, options) {}
  ServedTestJob(const Options& job, const ParameterServer::Options& options)
      : job_(job),
        servers_(job.inside ? job.workers : job.servers),
        first_server_(job.inside ? 0 : job.workers),
        options_(options),
        hosts_(static_cast<std::size_t>(servers_), "host"),
        fabrics_(make_local_fabrics(first_server_ + servers_ + job.newcomers)) {
    table_.add("a.weight", {.name = "weight", .shape = {job.floats}, .init = {}});
    start_.assign(static_cast<std::size_t>(table_.size()), 0.0F);
    processes_.resize(fabrics_.size());
    for (int server = 0; server < servers_; ++server) {
      serving_.insert(server);
    }
    for (int rank = 0; rank < first_server_ + servers_; ++rank) {
      begin(rank);
    }
  }
  ~ServedTestJob() {
    for (const std::unique_ptr<Process>& process : processes_) {
      if (process != nullptr) {
        process->links.reset();
      }
    }
  }

  ServedLinks& links(int rank) { return *processes_[static_cast<std::size_t>(rank)]->links; }
  ServedLinks& server(int number) { return links(first_server_ + number); }
  /// What it was told of pushes, by lease * 1'000'000 + seq.
  const std::vector<std::uint64_t>& heard(int server) {
    return processes_[static_cast<std::size_t>(first_server_ + server)]->heard;
  }
  /// The next of the newcomers comes, and has links to all. Its number.
  int add_server() {
    const int number = servers_ + added_++;
    {
      const std::scoped_lock lock(mutex_);
      known_servers_.push_back(Rank{first_server_ + number});
    }
    begin(first_server_ + number);
    return number;
  }
  void ask_to_leave(int number) {
    const std::scoped_lock lock(mutex_);
    history_.push_back({.what = ServerHistory::What::leaves, .rank = Rank{first_server_ + number}});
  }
  /// What is not there any more has left.
  void end_server(int number) {
    processes_[static_cast<std::size_t>(first_server_ + number)]->links.reset();
    fabrics_[static_cast<std::size_t>(first_server_ + number)].reset();
    const std::scoped_lock lock(mutex_);
    serving_.erase(number);
    for (auto& [incarnation, unconfirmed] : fences_) {
      unconfirmed.erase(number);
    }
  }
  /// The same of a worker with a server inside.
  void end_worker(int number) {
    end_server(number);
    lose_worker(number);
  }
  /// As a kill -9 of all of them would, in the middle of whatever they do. `gone`: returns when nobody uses any more
  /// what was theirs.
  void kill_servers(
      const std::vector<int>& numbers, const std::function<void()>& gone = [] {}) {
    for (const int number : numbers) {
      processes_[static_cast<std::size_t>(first_server_ + number)]->killed = true;
      for (int rank = 0; rank < static_cast<int>(fabrics_.size()); ++rank) {  // nothing more of it comes out
        if (rank != first_server_ + number) {
          fabrics_[static_cast<std::size_t>(first_server_ + number)]->lose(Rank{rank}, "it is killed");
        }
      }
    }
    gone();
    for (const int number : numbers) {
      end_server(number);
    }
    const std::scoped_lock lock(mutex_);
    for (const int number : numbers) {
      lost_.push_back(number);
      history_.push_back({.what = ServerHistory::What::lost, .rank = Rank{first_server_ + number}});
      if (job_.inside) {
        lose_worker_locked(number);
      }
    }
  }
  void lose_worker(int rank) {
    const std::scoped_lock lock(mutex_);
    lose_worker_locked(rank);
  }
  /// What a server said of a worker that is fenced; nothing: it has not yet.
  std::optional<std::vector<PushId>> fenced(int server, int worker) {
    const std::scoped_lock lock(mutex_);
    const auto found = fenced_.find({first_server_ + server, static_cast<std::uint64_t>(worker + 1)});
    return found == fenced_.end() ? std::nullopt : std::optional(found->second);
  }
  std::size_t floats() const { return start_.size(); }
  /// As this process sees it.
  Ownership table(int rank = 0) { return processes_[static_cast<std::size_t>(rank)]->routes->now(); }

 private:
  struct Process {
    std::unique_ptr<ServedRoutes> routes;
    ServedTeam team;
    std::atomic<bool> killed = false;
    std::vector<std::uint64_t> heard;  // before the links, which write to it
    std::unique_ptr<ServedLinks> links;
  };

  void begin(int rank) {
    processes_[static_cast<std::size_t>(rank)] = std::make_unique<Process>();
    Process& process = *processes_[static_cast<std::size_t>(rank)];
    process.routes = std::make_unique<ServedRoutes>(
        hosts_, job_.copies, Rank{first_server_},
        ServedRoutes::Events{.since =
                                 [this](std::size_t from) {
                                   const std::scoped_lock lock(mutex_);
                                   return std::vector(history_.begin() + static_cast<std::ptrdiff_t>(from),
                                                      history_.end());
                                 },
                             .is_gone =
                                 [this, &process](int server) {
                                   const std::scoped_lock lock(mutex_);
                                   return process.killed || std::ranges::count(lost_, server) > 0;
                                 }});
    process.team = {.fabric = fabrics_[static_cast<std::size_t>(rank)].get(),
                    .view = 1,
                    .incarnation = static_cast<std::uint64_t>(rank + 1),
                    .workers = job_.workers,
                    .servers = servers_,
                    .parts = job_.parts,
                    .inside = job_.inside,
                    .routes = process.routes.get(),
                    .servers_may_change = job_.newcomers > 0,
                    .shelves = 12,
                    .patience = std::chrono::seconds(60),
                    .tell =
                        [this, &process](const ServerNews& news) {
                          if (!process.killed) {
                            note(news);
                          }
                        },
                    .newly_lost =
                        [this, told = std::size_t{0}]() mutable {
                          const std::scoped_lock lock(mutex_);
                          const auto from = lost_workers_.begin() + static_cast<std::ptrdiff_t>(told);
                          told = lost_workers_.size();
                          return std::vector(from, lost_workers_.end());
                        },
                    .newcomers =
                        [this, met = known_servers_.size()]() mutable {
                          const std::scoped_lock lock(mutex_);
                          std::vector<ServedTeam::Newcomer> came;
                          for (; met < known_servers_.size(); ++met) {
                            came.push_back({.rank = known_servers_[met],
                                            .incarnation = incarnation_of_rank(known_servers_[met].value),
                                            .is_worker = job_.inside,
                                            .is_server = true,
                                            .link = [] {}});
                          }
                          return came;
                        },
                    .fenced =
                        [this, rank](std::uint64_t incarnation, const std::optional<std::vector<PushId>>& open) {
                          const std::scoped_lock lock(mutex_);
                          const PushId any = {incarnation, ~std::uint64_t{0}};  // its lease has its number
                          fenced_[{rank, incarnation}] = open.value_or(std::vector<PushId>{any});
                          fences_[incarnation].erase(rank - first_server_);
                        },
                    .leader_left = [&process] { return process.killed.load(); }};
    if (rank >= first_server_ + servers_) {
      process.team.is_late_server = true;
      process.team.servers_before = known_servers_;
      for (const Rank late : job_.inside ? known_servers_ : std::vector<Rank>()) {
        process.team.late_before.push_back({incarnation_of_rank(late.value), late});
      }
    }
    ServedLinks::Hooks hooks;
    hooks.heard = [&process](const RequestHead& request, const ReplyHead& reply, std::string_view) {
      if (request.kind == RequestHead::Kind::push && reply.status == ReplyHead::Status::done) {
        process.heard.push_back(request.push.lease * 1'000'000 + request.push.seq);
      }
    };
    hooks.save_heard = [&process] {
      return std::string(reinterpret_cast<const char*>(process.heard.data()),
                         process.heard.size() * sizeof(std::uint64_t));
    };
    hooks.restore_heard = [&process](const std::string& saved) {
      process.heard.resize(saved.size() / sizeof(std::uint64_t));
      std::memcpy(process.heard.data(), saved.data(), saved.size());
    };
    std::vector<ServedLinks::Space> spaces(static_cast<std::size_t>(job_.parts));
    for (int part = 0; part < job_.parts; ++part) {
      if (process.team.is_server() || process.team.part_of(Rank{rank}) == part) {
        spaces[static_cast<std::size_t>(part)] = {&table_, start_};
      }
    }
    process.links = std::make_unique<ServedLinks>(process.team, spaces, *rule_, options_, hooks);
  }
  static std::uint64_t incarnation_of_rank(int rank) { return static_cast<std::uint64_t>(rank + 1); }
  void lose_worker_locked(int rank) {
    lost_workers_.push_back({incarnation_of_rank(rank), Rank{rank}});
    fences_[incarnation_of_rank(rank)] = serving_;
  }
  /// As the coordinator does.
  void note(const ServerNews& news) {
    const std::scoped_lock lock(mutex_);
    const bool fences = std::ranges::any_of(fences_, [](const auto& fence) { return !fence.second.empty(); });
    if (news.what == ServerHistory::What::moved && fences) {
      return;
    }
    const auto is_of = [&](const ServerHistory::Event& event) {
      return event.what == news.what &&
             (news.what == ServerHistory::What::moved ? event.shelf == news.shelf : event.rank == news.primary);
    };
    const auto last = std::find_if(history_.rbegin(), history_.rend(), is_of);
    const bool said = last != history_.rend() && last->rank == news.primary && last->backup == news.backup;
    const auto moved = std::ranges::count(history_, ServerHistory::What::moved, &ServerHistory::Event::what);
    if (news.changes == history_.size() - static_cast<std::size_t>(moved) && !said) {
      history_.push_back(
          {.what = news.what, .rank = news.primary, .host = "host", .shelf = news.shelf, .backup = news.backup});
      if (news.what == ServerHistory::What::joined) {
        serving_.insert(news.primary.value - first_server_);
      }
    }
  }

  const Options job_;
  const int servers_;
  const int first_server_;
  const ParameterServer::Options options_;
  const std::vector<std::string> hosts_;
  ParameterTable table_;
  std::vector<float> start_;
  const std::unique_ptr<UpdateRule> rule_ = make_rule({.name = "sgd"});
  int added_ = 0;
  std::mutex mutex_;
  std::vector<int> lost_;  // guarded by mutex_, as all below but the last two
  std::vector<ServerHistory::Event> history_;
  std::vector<Rank> known_servers_;  ///< that came
  std::vector<ServedTeam::LostWorker> lost_workers_;
  std::map<std::pair<int, std::uint64_t>, std::vector<PushId>> fenced_;
  std::set<int> serving_;
  std::map<std::uint64_t, std::set<int>> fences_;  ///< servers that have not confirmed, by who is fenced
  std::vector<std::unique_ptr<Fabric>> fabrics_;
  std::vector<std::unique_ptr<Process>> processes_;
};

inline ParameterServer::Options counting() {
  return {.update = [](std::uint64_t, int) { return UpdateOptions{.rate = 1}; }};
}

/// Pushes units of ones, and fetches now and then. All must be acknowledged.
inline void push_ones(ServedTestJob& job, int worker, std::uint64_t pushes, std::uint64_t first = 0) {
  ServerClient& client = job.links(worker).worker();
  const std::vector<float> ones(job.floats(), 1.0F);
  std::vector<float> values(job.floats());
  const std::span<const float> part = ones;
  for (std::uint64_t i = first; i < first + pushes; ++i) {
    if (i % 3 == 0) {
      client.begin_fetch();
    }
    client.add({&part, 1});
    ASSERT_TRUE(client.push({.id = {static_cast<std::uint64_t>(worker + 1), i}, .wants_values = i % 2 == 0}, soon())
                    .outcome.ok());
    const ServerClient::PushReport report = client.wait_pushed(soon());
    ASSERT_TRUE(report.outcome.ok()) << report.outcome.reason;
    ASSERT_EQ(report.status, ReplyHead::Status::done);
    if (client.fetching()) {
      ASSERT_TRUE(client.wait_fetched(soon()).ok());
      client.take(values);
    }
  }
}

inline std::vector<float> fetched(ServedTestJob& job, int worker) {
  ServerClient& client = job.links(worker).worker();
  std::vector<float> values(job.floats());
  client.begin_fetch();
  EXPECT_TRUE(client.wait_fetched(soon()).ok());
  client.take(values);
  return values;
}

inline bool wait_until(const std::function<bool()>& done) {
  for (const Clock::time_point end = soon(); Clock::now() < end;) {
    if (done()) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

inline void nap(std::mt19937& draw) { std::this_thread::sleep_for(std::chrono::microseconds(draw() % 20'000)); }

}  // namespace distbelief
