#include "train/measured_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "metrics/format.h"
#include "metrics/memory_limit.h"
#include "train/core_share.h"
#include "train/job_hosts.h"
#include "train/machine_costs.h"
#include "train/model_cut.h"

namespace distbelief {
namespace {

/// Workers of the machine that has the most.
int workers_of_a_machine(const RunConfig& config) {
  if (config.hosts.empty()) {
    return static_cast<int>(config.workers);
  }
  const std::vector<JobHost> hosts = parse_hosts(config.hosts);
  return std::ranges::max_element(hosts, {}, &JobHost::slots)->slots;
}

}  // namespace

void plan_by_measurement(RunConfig& config, const Graph& graph, const ParameterTable& table,
                         const PlanKnowledge& knowledge) {
  if (!needs_plan(config)) {
    return;
  }
  const auto tell = [&](const std::string& line) {
    if (knowledge.note) {
      knowledge.note(line);
    }
  };
  (void)best_cut(config, graph, table);  // by operations: refuses what cannot be cut
  const int sharers = std::max(1, workers_of_a_machine(config));
  const int threads = config.threads > 0 ? static_cast<int>(config.threads) : std::max(1, usable_cores() / sharers);
  const TimedLoad load = load_of_machine(sharers, threads);
  MeasuredLayers layers(knowledge.cache, load, [&](int before) {
    if (before == 0) {
      tell("plan    measures what the network's layers take on this machine, and keeps it for later plans");
    }
  });
  std::vector<std::string> notes;
  const std::optional<LinkSpeed> link = config.hosts.empty() ? measured_link(knowledge.cache, notes) : kUsualLink;
  PlanPlace place;
  place.machine.times = &layers.times();
  place.machine.memory_bandwidth =
      measured_memory(knowledge.cache, load, notes).value_or(place.machine.memory_bandwidth);
  if (link) {
    place.machine.link_bandwidth = link->bandwidth;
    place.machine.link_latency = link->latency;
  }
  place.memory_limit = config.hosts.empty() ? static_cast<std::int64_t>(memory_of_a_process(sharers)) : 0;
  const WeighedCut cut = best_settled_cut(config, graph, table, place);
  (void)layers.finish(notes);
  for (const std::string& note : notes) {
    tell("note    " + note);
  }
  if (!cut.fits) {
    tell(fmt::format("note    each worker may need {}, and has {}: more workers, a smaller --batch{} need less",
                     bytes_text(static_cast<std::uint64_t>(cut.prediction.most_memory)),
                     bytes_text(static_cast<std::uint64_t>(place.memory_limit)),
                     cut.stages > 1 && !config.recompute ? " or --recompute" : ""));
  }
  config = cut.config;
}

}  // namespace distbelief
