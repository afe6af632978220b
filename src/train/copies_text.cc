// What the first lines of a run say of how many hold what.
#include "train/copies_text.h"

#include <fmt/format.h>

namespace distbelief {
namespace {

/// "2 stages of 2 workers, 8 micro-batches".
std::string grid_text(const Grid& grid, std::int64_t micro_batches) {
  const std::string sharers = counted(static_cast<std::size_t>(grid.tensor), "worker");
  if (grid.stages == 1) {
    return sharers + ", which share each layer's work";
  }
  return fmt::format("{} of {}, {} micro-batch{}", counted(static_cast<std::size_t>(grid.stages), "stage"), sharers,
                     micro_batches, micro_batches == 1 ? "" : "es");
}

}  // namespace

std::string counted(std::size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string copies_text(const Grid& grid, std::int64_t micro_batches) {
  return fmt::format("{} of {}",
                     grid.replicas == 1 ? "one copy of the network" : fmt::format("{} copies", grid.replicas),
                     grid_text(grid, micro_batches));
}

std::string copies_of_parameters_text(const RunConfig& config) {
  const std::string holder = config.servers == 0 ? "worker" : "server";
  if (holders_of(config) > 1) {
    return fmt::format("copies  each parameter is {} two {}s: one of them may die", config.servers == 0 ? "with" : "on",
                       holder);
  }
  const std::int64_t holders = config.servers == 0 ? config.workers : config.servers;
  return fmt::format("copies  none{}: when a {} dies the run ends, and goes on from its last checkpoint",
                     holders == 1 ? fmt::format(", as there is one {}", holder) : "", holder);
}

std::string copies_of_parts_text(const Grid& grid, const RunConfig& config) {
  const bool restarts = config.restarts > 0 && config.hosts.empty();
  const std::string replaced = config.transport == "threads" ? ""
                               : config.standby > 0          ? "a standby takes the place of one that dies"
                               : restarts                    ? "a new process takes the place of one that dies"
                                                             : "";
  if (!replaced.empty()) {
    return fmt::format(
        "copies  each part is held by {}: {}, {}",
        grid.replicas == 1 ? "one worker" : fmt::format("{} workers", grid.replicas), replaced,
        grid.replicas > 1 ? "and gets its part from another copy" : "and all go back to the last checkpoint");
  }
  if (grid.replicas > 1) {
    return fmt::format("copies  each part is held by {} workers: when one dies its copy is given up, the others go on",
                       grid.replicas);
  }
  return "copies  each part is held by one worker: when one dies the others go back to the last checkpoint";
}

}  // namespace distbelief
