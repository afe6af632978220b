#pragma once

#include <functional>
#include <optional>

#include "exec/replica.h"
#include "server/server_client.h"

namespace distbelief {

/// A worker of Sandblaster (Dean et al. 2012). It asks for a unit of portions of the batch, fetches the parameters once
/// for each evaluation of the objective, adds up the gradient of the unit and pushes it. The next unit is asked for
/// while one is computed, and a push travels while the next is. One thread.
///
/// Where several workers hold a copy of the network, each pushes and fetches what it has a part of; they all make the
/// same calls, and a unit is done when it is with the servers of every part.
///
/// Who uses it calls next(), begin() with what that found, add() for each batch of it, and push().
class PortionWorker {
 public:
  /// What was told to who asked for work.
  struct Told {
    Outcome::Kind outcome = Outcome::Kind::done;
    bool is_work = false;
    Work work = {};
  };
  struct Options {
    Clock::duration patience = std::chrono::minutes(10);  ///< for servers that live but do not answer
    bool asks = true;                                     ///< for work; of a copy that several hold the first does
    /// These three of a copy that several hold. What the first was told becomes what all were told.
    std::function<void(Told&)> share = {};
    /// As in UnitExchange.
    std::function<void(ServerClient::PushReport&)> agree = {};
    std::function<void(std::span<float> values)> fetched = {};
  };
  /// Both are borrowed.
  PortionWorker(Replica& replica, ServerClient& client, Options options);

  /// What is to be computed. Nothing: there is nothing for now; all that was pushed is then known to be done. Waits for
  /// `nap` at most, unless a push is under way.
  [[nodiscard]] Outcome next(std::optional<Work>& work, Clock::duration nap);
  /// Brings the parameters of its evaluation.
  [[nodiscard]] Outcome begin(const Work& work);
  /// Computes the gradient of a batch.
  LossSums add(const Batch& batch);
  /// Of the work that was added up. Where the loss is not finite nothing is pushed, but told: then the objective is not
  /// finite, whatever its gradient is.
  [[nodiscard]] Outcome push(const Work& work);
  /// All that was pushed is done and told.
  [[nodiscard]] Outcome settle();

 private:
  Clock::time_point deadline() const { return Clock::now() + options_.patience; }
  void begin_asking(bool waits);
  [[nodiscard]] Outcome wait_asked(std::optional<Work>& work, Clock::time_point deadline);
  /// Of the push that is under way, if there is one.
  [[nodiscard]] Outcome wait_pushed();

  Replica& replica_;
  ServerClient& client_;
  const Options options_;
  bool asking_ = false;
  std::optional<std::uint64_t> evaluation_;  ///< whose parameters the replica has
  LossSums sums_;                            ///< of the work that is being added up
  std::optional<UnitReport> pushed_;         ///< not acknowledged yet
  std::optional<UnitReport> done_;           ///< acknowledged, and not told yet
};

}  // namespace distbelief
