#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/group.h"
#include "strategy/strategy.h"
#include "strategy/whole_model.h"

namespace distbelief {

/// What all strategies of a group need to know.
struct GroupOptions {
  std::int64_t most_rows = 0;                           ///< a member's largest share of a batch
  Clock::duration patience = std::chrono::minutes(10);  ///< for members that live but do not answer
  /// Where the network is cut, and other groups have its other parts: returns when all that a step's update needs is
  /// with every process of all parts, so that whoever is lost later, the others can make it. Empty: it is not asked.
  std::function<Outcome(Clock::time_point deadline)> commit = {};
};

/// What a member wants all to do after a step.
struct Wishes {
  bool stop = false;
  bool regroup = false;  ///< to take in members that came, or to do without one that leaves
};

/// What the members of a synchronous group tell each other in every step besides gradients: sums of losses, the samples
/// they took, and whether someone was asked to stop. One message round; all members get the same answer.
class StepExchange {
 public:
  /// `group` is borrowed. No member takes more than `most_rows` samples a step.
  StepExchange(Group& group, std::int64_t most_rows);
  /// From the next step on that is `most_rows`, for all members.
  void expect_rows(std::int64_t most_rows);

  struct Told {
    LossSums sums;
    std::int64_t contributions = 0;     ///< gradients that were summed: lanes with rows, of all members
    std::vector<std::uint64_t> others;  ///< samples that other members took
    Wishes wishes;                      ///< of any of them
    std::vector<StepCosts> costs;       ///< of each, in order
  };
  /// Tells ours and returns everybody's in `told`.
  Outcome tell(const LossSums& sums, std::int64_t contributions, std::span<const std::uint64_t> ids, Wishes wishes,
               Clock::time_point deadline, Told& told, const StepCosts& costs = {});

  /// What this member did in a step whose gradients are summed.
  struct Own {
    const Batch& batch;
    LossSums sums;
    std::int64_t contributions = 0;
    Wishes wishes = {};
    StepCosts costs = {};  ///< of the step before
  };
  /// Makes the update; what became of it is the same for all members. When a member is lost meanwhile, `update` says
  /// whether it was made here.
  using Update = std::function<Outcome(const Told& told, WholeUpdate& update)>;
  /// The second half of a synchronous step: all tell theirs, update, and settle what became of the samples. When the
  /// sum of losses is not finite there is no update: who has the cause in its own samples names it, and all report it.
  StepReport finish_step(Replica& replica, const Own& own, BatchStream& batches, Clock::time_point deadline,
                         const Update& update);

  /// All tell what they found, which may be nothing, and get the first that is not.
  Outcome tell_culprit(std::string& culprit, Clock::time_point deadline);

 private:
  StepReport diverged(Replica& replica, const Own& own, const Told& told, BatchStream& batches,
                      Clock::time_point deadline);

  Group& group_;
  std::size_t slot_ = 0;  ///< numbers of one member
  std::vector<std::uint64_t> numbers_;
};

/// A step whose gradient is summed, and of which this member lacks nothing. What it borrows is there until the next one.
struct PreparedStep {
  const Batch& batch;
  StepExchange::Told told;
  std::span<const float> gradient;
  PreparedUpdate update;

  /// Makes its update, because others have; tells the audit.
  StepReport finish(ParameterShard& shard, const Replica& replica, BatchStream& batches) const;
};

/// The gradient of a batch in `lanes` (of Replica::gradient_memory()), or zeros when the batch is empty.
LossSums compute_or_zero(Replica& replica, const Batch& batch, std::span<const std::span<float>> lanes,
                         GradientListener* listener);
/// How many gradients a member adds to the sum.
std::int64_t contributions(const Batch& batch, std::span<const std::span<float>> lanes);
/// What was observed, such as batch norm's statistics, counts as the mean of all that observed it.
void average_observed(const ParameterTable& table, std::span<float> sum, std::int64_t contributions);
/// "rank 2 closed the connection".
std::string lost_text(const Outcome& outcome);
StepReport lost_report(const Outcome& outcome);

/// Copies the values and what visit_state() shows on the first member to all others: a join() for strategies whose
/// members all hold the whole state.
StepReport copy_from_first(Group& group, Replica& replica, Strategy& strategy, Clock::duration patience);

}  // namespace distbelief
