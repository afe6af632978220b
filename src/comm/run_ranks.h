#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "transport/fabric.h"
#include "transport/local/local_fabric.h"

namespace distbelief {

/// For tests: calls body(fabric) for each of `ranks` ranks at the same time, each on a thread of its own with links
/// between them, and returns when all have returned. A rank that returns early is lost to the others.
inline void run_ranks(int ranks, const std::function<void(Fabric&)>& body) {
  std::vector<std::unique_ptr<Fabric>> fabrics = make_local_fabrics(ranks);
  std::vector<std::jthread> threads;
  for (std::unique_ptr<Fabric>& fabric : fabrics) {
    threads.emplace_back([&body, &fabric] {
      body(*fabric);
      fabric.reset();
    });
  }
}

}  // namespace distbelief
