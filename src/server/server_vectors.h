#pragma once

#include "params/lbfgs/vector_space.h"
#include "server/server_client.h"

namespace distbelief {

/// The vectors of a job, which its servers keep. One thread.
class ServerVectors : public VectorSpace {
 public:
  /// `client`, which is a leader's, is borrowed. `patience`: for servers that live but do not answer.
  ServerVectors(ServerClient& client, Clock::duration patience) : client_(client), patience_(patience) {}

  bool run(std::span<const VectorOrder> orders, std::vector<double>& dots) override { return run(orders, 0, dots); }
  /// The same; before it, pushes of leases below `low_water` count as taken.
  bool run(std::span<const VectorOrder> orders, std::uint64_t low_water, std::vector<double>& dots) {
    outcome_ = client_.run_vectors(orders, low_water, dots, Clock::now() + patience_).outcome;
    return outcome_.ok();
  }
  /// Why vectors are lost.
  const Outcome& outcome() const { return outcome_; }

 private:
  ServerClient& client_;
  const Clock::duration patience_;
  Outcome outcome_;
};

}  // namespace distbelief
