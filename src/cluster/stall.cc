#include "cluster/stall.h"

#include <algorithm>

namespace distbelief {

std::vector<std::size_t> find_stalled(std::span<const StepWatch> workers, Clock::duration limit) {
  if (workers.size() < 2) {
    return {};
  }
  const auto stands = [limit](const StepWatch& worker) { return worker.unmoved >= limit; };
  const auto waits = [](const StepWatch& worker) { return worker.waits_for_others; };
  std::vector<std::size_t> stalled;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    if (stands(workers[i]) && !waits(workers[i])) {
      stalled.push_back(i);
    }
  }
  if (!stalled.empty()) {
    const bool matters = std::any_of(workers.begin(), workers.end(),
                                     [&](const StepWatch& worker) { return waits(worker) || !stands(worker); });
    return matters ? stalled : std::vector<std::size_t>{};
  }
  if (std::all_of(workers.begin(), workers.end(), stands)) {  // and so all wait
    const auto last = std::min_element(workers.begin(), workers.end(),
                                       [](const StepWatch& a, const StepWatch& b) { return a.step < b.step; });
    return {static_cast<std::size_t>(last - workers.begin())};
  }
  return {};
}

}  // namespace distbelief
