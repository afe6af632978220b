#include "train/thread_team.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "train/worker_chaos.h"
#include "transport/local/local_fabric.h"

namespace distbelief {
namespace {

/// What workers on other threads have to say, told to the observer on its own thread.
class NotesOfAll : public RunObserver {
 public:
  explicit NotesOfAll(RunObserver& shown) : shown_(shown) {}
  /// Any thread.
  void put(const std::string& text) {
    const std::scoped_lock lock(mutex_);
    notes_.push_back(text);
  }
  void tell() {
    std::vector<std::string> notes;
    {
      const std::scoped_lock lock(mutex_);
      notes.swap(notes_);
    }
    for (const std::string& text : notes) {
      shown_.note(text);
    }
  }
  void started(const std::vector<std::string>& lines) override { shown_.started(lines); }
  void stepped(const ProgressState& state) override {
    tell();
    shown_.stepped(state);
  }
  void epoch_ended(const EpochReport& report) override { shown_.epoch_ended(report); }
  void note(std::string_view text) override { shown_.note(text); }

 private:
  RunObserver& shown_;
  std::mutex mutex_;
  std::vector<std::string> notes_;  // guarded by mutex_
};

}  // namespace

RunSummary train_on_threads(const std::filesystem::path& folder, bool resumes, const RunConfig& config,
                            RunObserver& observer, const std::function<bool()>& stop_requested) {
  const auto workers = static_cast<int>(config.workers);
  const auto members = static_cast<int>(processes_of(config));
  const bool inside = members == workers;
  const int leader = is_served(config) && !inside ? workers : 0;
  std::vector<std::unique_ptr<Fabric>> fabrics = make_local_fabrics(members);
  SharedLeases leases;
  std::atomic<bool> leader_left = false;
  NotesOfAll notes(observer);
  std::mutex mutex;
  std::exception_ptr first_error;                      // guarded by mutex
  std::vector<ServedTeam::LostWorker> failed_workers;  // guarded by mutex
  std::set<std::uint64_t> workers_left;                // guarded by mutex
  for (int rank = 0; rank < workers; ++rank) {
    workers_left.insert(static_cast<std::uint64_t>(rank) + 1);
  }
  const auto work = [&](int rank, RunObserver& watcher) {
    FaultyFabric* faulty = nullptr;
    LockedFabric* locked = nullptr;
    const std::unique_ptr<Fabric> fabric =  // who fails is lost to the others
        with_lock(with_faults(std::move(fabrics[static_cast<std::size_t>(rank)]), config, faulty), config, locked);
    RunSummary summary;
    std::optional<Group> group;
    ThreadLeases own_leases(leases, static_cast<std::uint64_t>(rank) + 1);
    const ServedTeam served = {
        .fabric = fabric.get(),
        .view = 1,
        .incarnation = static_cast<std::uint64_t>(rank) + 1,
        .workers = workers,
        .servers = inside ? workers : members - workers,
        .parts = static_cast<int>(parts_of(config)),
        .inside = inside,
        .leases = &own_leases,
        .plan_leases = [&](const LeaseTable::Options& plan, std::uint64_t) { leases.plan(plan); },
        .newly_lost =
            [&, told = std::size_t{0}]() mutable {
              const std::scoped_lock lock(mutex);
              const std::size_t before = std::exchange(told, failed_workers.size());
              return std::vector(failed_workers.begin() + static_cast<std::ptrdiff_t>(before), failed_workers.end());
            },
        .workers_left =
            [&] {
              const std::scoped_lock lock(mutex);
              return ServedTeam::WorkersLeft{.incarnations = {workers_left.begin(), workers_left.end()}};
            },
        .leader_left = [&] { return leader_left.load(); }};
    try {
      Team team = {.sharers = workers};
      if (is_served(config)) {
        team.served = &served;
      } else {
        team.group = &group.emplace(*fabric, all_ranks(*fabric), 1);
      }
      std::optional<WorkerChaos> chaos;
      if (!config.chaos.empty()) {
        team.chaos = &chaos.emplace(
            config,
            WorkerChaos::Place{.self = rank, .fabric = faulty, .folder = folder, .note = [&](const std::string& text) {
                                 notes.put(text);
                               }});
      }
      summary = Trainer::in_team(team, folder, resumes, config, watcher).run(stop_requested);
    } catch (...) {
      const std::scoped_lock lock(mutex);
      if (!first_error) {
        first_error = std::current_exception();
      }
      if (rank < workers) {
        failed_workers.push_back({static_cast<std::uint64_t>(rank) + 1, Rank{rank}});
      }
    }
    leases.leave(static_cast<std::uint64_t>(rank) + 1);
    {
      const std::scoped_lock lock(mutex);
      workers_left.erase(static_cast<std::uint64_t>(rank) + 1);
    }
    leader_left = leader_left || rank == leader;
    return summary;
  };
  RunSummary summary;
  {
    std::vector<std::jthread> others;
    std::vector<RunObserver> silent(static_cast<std::size_t>(members));
    for (int rank = 0; rank < members; ++rank) {
      if (rank != leader) {
        others.emplace_back([&, rank] { (void)work(rank, silent[static_cast<std::size_t>(rank)]); });
      }
    }
    summary = work(leader, notes);
  }
  notes.tell();
  if (first_error) {
    std::rethrow_exception(first_error);
  }
  return summary;
}

}  // namespace distbelief
