#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "params/lbfgs/vector_space.h"
#include "server/server_client.h"

namespace distbelief {

/// The vectors of a job, which its servers keep. Where a network is cut each part has its own share of them. One
/// thread.
class ServerVectors : public VectorSpace {
 public:
  /// `parts`, a leader's clients for the parts of the network, are borrowed. `patience`: for servers that live but do
  /// not answer.
  ServerVectors(std::vector<ServerClient*> parts, Clock::duration patience)
      : parts_(std::move(parts)), patience_(patience) {}

  bool run(std::span<const VectorOrder> orders, std::vector<double>& dots) override { return run(orders, 0, dots); }
  /// The same; before it, pushes of leases below `low_water` count as taken.
  bool run(std::span<const VectorOrder> orders, std::uint64_t low_water, std::vector<double>& dots) {
    const Clock::time_point deadline = Clock::now() + patience_;
    std::vector<double> of_part;
    for (ServerClient* part : parts_) {
      outcome_ = part->run_vectors(orders, low_water, of_part, deadline).outcome;
      if (!outcome_.ok()) {
        return false;
      }
      if (part == parts_.front()) {
        dots = of_part;
      } else {
        std::ranges::transform(dots, of_part, dots.begin(), std::plus<>());
      }
    }
    return true;
  }
  /// Why vectors are lost.
  const Outcome& outcome() const { return outcome_; }

 private:
  const std::vector<ServerClient*> parts_;
  const Clock::duration patience_;
  Outcome outcome_;
};

}  // namespace distbelief
