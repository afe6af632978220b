#include "train/core_share.h"

#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace distbelief {
namespace {

struct Free {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
  void operator()(hwloc_bitmap_s* set) const { hwloc_bitmap_free(set); }
};
using Topology = std::unique_ptr<hwloc_topology, Free>;
using CoreSet = std::unique_ptr<hwloc_bitmap_s, Free>;

Topology this_topology() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) {
    throw Error("hwloc cannot be started");
  }
  Topology owner(topology);
  if (hwloc_topology_load(topology) != 0) {
    throw Error("hwloc cannot read this machine's topology");
  }
  return owner;
}

CoreSet usable_set(const Topology& topology) {
  CoreSet set(hwloc_bitmap_alloc());
  if (hwloc_get_cpubind(topology.get(), set.get(), HWLOC_CPUBIND_PROCESS) != 0) {
    hwloc_bitmap_copy(set.get(), hwloc_topology_get_allowed_cpuset(topology.get()));
  }
  hwloc_bitmap_and(set.get(), set.get(), hwloc_topology_get_allowed_cpuset(topology.get()));
  return set;
}

/// What is usable of each core, in the order of the topology. A machine that does not tell its cores has its hardware
/// threads instead.
std::vector<CoreSet> cores_of(const Topology& topology, const CoreSet& usable) {
  std::vector<CoreSet> cores;
  const auto kind = hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  for (hwloc_obj_t object = hwloc_get_next_obj_by_type(topology.get(), kind, nullptr); object != nullptr;
       object = hwloc_get_next_obj_by_type(topology.get(), kind, object)) {
    CoreSet own(hwloc_bitmap_alloc());
    hwloc_bitmap_and(own.get(), object->cpuset, usable.get());
    if (hwloc_bitmap_iszero(own.get()) == 0) {
      cores.push_back(std::move(own));
    }
  }
  return cores;
}

std::string text_of(const CoreSet& set) {
  std::string text(1024, '\0');
  const int length = hwloc_bitmap_list_snprintf(text.data(), text.size(), set.get());
  text.resize(static_cast<std::size_t>(std::clamp(length, 0, static_cast<int>(text.size()) - 1)));
  return text;
}

}  // namespace

int usable_cores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) == 0 ? std::max(1, CPU_COUNT(&cores)) : 1;
}

std::uint64_t usable_cores_digest() {
  cpu_set_t cores = {};
  (void)sched_getaffinity(0, sizeof cores, &cores);
  return std::hash<std::string_view>()({reinterpret_cast<const char*>(&cores), sizeof cores});
}

CorePlan plan_cores(const CoreSharers& sharers) {
  const Topology topology = this_topology();
  const std::vector<CoreSet> cores = cores_of(topology, usable_set(topology));
  const auto count = static_cast<int>(cores.size());
  const int needed = sharers.workers * sharers.threads;
  const auto cores_between = [&](int begin, int end) {
    const CoreSet set(hwloc_bitmap_alloc());
    for (int core = begin; core < end; ++core) {
      hwloc_bitmap_or(set.get(), set.get(), cores[static_cast<std::size_t>(core)].get());
    }
    return text_of(set);
  };
  CorePlan plan;
  if (count / sharers.workers < std::max(1, sharers.threads)) {
    return plan;
  }
  const bool leaves = sharers.servers > 0 && needed > 0 && needed + sharers.servers <= count;
  const int used = leaves ? needed : count;
  for (int i = 0; i < sharers.workers; ++i) {
    plan.workers.push_back(cores_between(used * i / sharers.workers, used * (i + 1) / sharers.workers));
  }
  if (leaves) {
    plan.spare = cores_between(used, count);
  }
  return plan;
}

namespace {

bool bind_to(const std::string& cores, int what) {
  const Topology topology = this_topology();
  const CoreSet set(hwloc_bitmap_alloc());
  return hwloc_bitmap_list_sscanf(set.get(), cores.c_str()) == 0 &&
         hwloc_set_cpubind(topology.get(), set.get(), what) == 0;
}

}  // namespace

bool bind_process(const std::string& cores) { return bind_to(cores, HWLOC_CPUBIND_PROCESS); }
bool bind_thread(const std::string& cores) { return bind_to(cores, HWLOC_CPUBIND_THREAD); }

}  // namespace distbelief
