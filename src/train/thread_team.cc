#include "train/thread_team.h"

#include <exception>
#include <mutex>
#include <thread>

#include "transport/local/local_fabric.h"

namespace distbelief {

RunSummary train_on_threads(const std::filesystem::path& folder, bool resumes, const RunConfig& config,
                            RunObserver& observer, const std::function<bool()>& stop_requested) {
  const auto workers = static_cast<int>(config.workers);
  std::vector<std::unique_ptr<Fabric>> fabrics = make_local_fabrics(workers);
  std::mutex mutex;
  std::exception_ptr first_error;
  const auto work = [&](int rank, RunObserver& watcher) {
    std::unique_ptr<Fabric> fabric =
        std::move(fabrics[static_cast<std::size_t>(rank)]);  // who fails is lost to the others
    RunSummary summary;
    try {
      Group group(*fabric, all_ranks(*fabric), 1);
      summary =
          Trainer::in_team({.group = &group, .sharers = workers}, folder, resumes, config, watcher).run(stop_requested);
    } catch (...) {
      const std::scoped_lock lock(mutex);
      if (!first_error) {
        first_error = std::current_exception();
      }
    }
    return summary;
  };
  RunSummary summary;
  {
    std::vector<std::jthread> others;
    std::vector<RunObserver> silent(static_cast<std::size_t>(workers));
    for (int rank = 1; rank < workers; ++rank) {
      others.emplace_back([&, rank] { (void)work(rank, silent[static_cast<std::size_t>(rank)]); });
    }
    summary = work(0, observer);
  }
  if (first_error) {
    std::rethrow_exception(first_error);
  }
  return summary;
}

}  // namespace distbelief
