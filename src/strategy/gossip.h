#pragma once

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "comm/peer_rounds.h"
#include "exec/gradient_listener.h"
#include "strategy/step_exchange.h"

namespace distbelief {

/// Asynchronous SGD between peers, without a server: in each round every member computes the gradient of a batch of its
/// own, applies it, sends it to all others, applies what has come from them meanwhile, and goes on when `quorum` of
/// their gradients of this round have come. Every gradient is an update of its own on every member, scaled by its own
/// rows. Members differ by the order of updates only. settle() delivers all that is on its way and averages parameters
/// and optimizer state.
///
/// No member is more than `staleness` rounds ahead of the slowest: it waits (stale synchronous parallel, Ho et al.
/// 2013). That also bounds memory, and is when all agree on what one of them said: a request to stop and a loss that is
/// not finite end training after the same round on all members, `staleness` rounds later. With a quorum of all others
/// members go in step: a stop is heard in the round in which it was said, and equal runs give equal bits.
///
/// Samples count as applied when settle() has made the parameters common that contain them. A member with a loss that
/// is not finite sends no more gradients.
class Gossip : public Strategy {
 public:
  struct Options {
    GroupOptions group;
    int quorum = 0;     ///< gradients of a round that are waited for, 0 … members - 1
    int staleness = 2;  ///< at least 1
    /// What the rate is multiplied with, as gradients come several times as often as in one process. The rule should
    /// take that into account, too: see params/slower_rule.h.
    float rate = 1;
  };
  /// All but `options` are borrowed.
  Gossip(Replica& replica, const UpdateRule& rule, Group& group, const Options& options);
  [[nodiscard]] StepReport join() override;
  [[nodiscard]] StepReport step(BatchStream& batches, const StepRequest& request) override;
  [[nodiscard]] StepReport settle(BatchStream& batches) override;
  bool in_step() const override { return false; }
  /// After settle() and before the next step; members differ otherwise.
  bool holds_state() const override { return rounds_.sent() == settled_; }
  void visit_state(StateVisitor& visitor) override;

 private:
  /// What comes before a gradient. The samples' ids follow, then the gradient.
  struct Head;
  /// Bytes move while backward runs, where it is the only use of the fabric.
  class Listener : public GradientListener {
   public:
    explicit Listener(PeerRounds& rounds) : rounds_(rounds) {}
    void final_from(int lane, std::int64_t /*offset*/) override {
      if (lane == 0) {
        rounds_.progress();
      }
    }

   private:
    PeerRounds& rounds_;
  };

  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

  std::size_t message_bytes() const;
  /// Computes and applies a batch and writes the message about it.
  void compute(const Batch& batch, Wishes wishes, std::span<std::byte> message);
  std::string apply(std::span<const float> gradient, std::int64_t rows);
  /// Takes in the next message of a peer, which has arrived.
  void take(int position, std::span<const std::byte> message, BatchStream& batches);
  void take_all_that_came(BatchStream& batches);
  /// Goes on listening until done() or the deadline.
  template <typename Done>
  Outcome listen_until(const Done& done, BatchStream& batches, Clock::time_point deadline);
  Outcome wait_for_others(BatchStream& batches, Clock::time_point deadline);
  /// All that was sent is read, here and by the others: for when all have sent equally many rounds.
  Outcome deliver_all(BatchStream& batches, Clock::time_point deadline);
  bool enough_came() const;
  int slowest() const;
  /// All have heard of trouble and delivered everything: who knows the cause tells it.
  StepReport diverged(BatchStream& batches, Clock::time_point deadline);

  Replica& replica_;
  Group& group_;
  const Options options_;
  const bool in_step_;  ///< all others are waited for
  ParameterShard shard_;
  StepExchange exchange_;
  PeerRounds rounds_;
  Listener listener_;
  UpdateOptions update_;  ///< of the last step
  std::uint64_t epoch_ = 0;
  std::uint64_t settled_ = 0;             ///< the round after which all were last together
  std::uint64_t stop_round_ = kNever;     ///< the first in which someone wanted to stop
  std::set<std::uint64_t> regroup_rounds_;  ///< in which someone wanted to regroup, and it was not reported yet
  std::uint64_t trouble_round_ = kNever;  ///< the first in which someone could not go on
  bool loss_diverged_ = false;            ///< someone's trouble is its loss
  LossSums unreported_;                   ///< of all members
  std::vector<std::uint64_t> unsettled_;  ///< samples of all members
  std::string culprit_;                   ///< why this member does not train any more
};

}  // namespace distbelief
