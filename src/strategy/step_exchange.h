#pragma once

#include <string>
#include <vector>

#include "comm/group.h"
#include "strategy/strategy.h"

namespace distbelief {

/// What all strategies of a group need to know.
struct GroupOptions {
  std::int64_t most_rows = 0;                           ///< a member's largest share of a batch
  Clock::duration patience = std::chrono::minutes(10);  ///< for members that live but do not answer
};

/// What the members of a synchronous group tell each other in every step besides gradients: sums of losses, the samples
/// they took, and whether someone was asked to stop. One message round; all members get the same answer.
class StepExchange {
 public:
  /// `group` is borrowed. No member takes more than `most_rows` samples a step.
  StepExchange(Group& group, std::int64_t most_rows);

  struct Told {
    LossSums sums;
    std::int64_t contributions = 0;     ///< gradients that were summed: lanes with rows, of all members
    std::vector<std::uint64_t> others;  ///< samples that other members took
    bool stop = false;
  };
  /// Tells ours and returns everybody's in `told`.
  Outcome tell(const LossSums& sums, std::int64_t contributions, std::span<const std::uint64_t> ids, bool stop,
               Clock::time_point deadline, Told& told);

  /// When the sum of losses is not finite: who has the cause in its own samples names the layer, and all report it.
  StepReport diverged(Replica& replica, const Batch& batch, const LossSums& own, const Told& told, BatchStream& batches,
                      Clock::time_point deadline);
  /// All tell what they found, which may be nothing, and get the first that is not.
  Outcome tell_culprit(std::string& culprit, Clock::time_point deadline);

 private:
  Group& group_;
  const std::size_t slot_;  ///< numbers of one member
  std::vector<std::uint64_t> numbers_;
};

/// The gradient of a batch in `lanes` (of Replica::gradient_memory()), or zeros when the batch is empty.
LossSums compute_or_zero(Replica& replica, const Batch& batch, std::span<const std::span<float>> lanes,
                         GradientListener* listener);
/// How many gradients a member adds to the sum.
std::int64_t contributions(const Batch& batch, std::span<const std::span<float>> lanes);
/// What was observed, such as batch norm's statistics, counts as the mean of all that observed it.
void average_observed(const ParameterTable& table, std::span<float> sum, std::int64_t contributions);
/// Tells the audit what became of everybody's samples.
void settle_samples(BatchStream& batches, const Batch& batch, const StepExchange::Told& told, bool applied);

/// "rank 2 closed the connection".
std::string lost_text(const Outcome& outcome);
StepReport lost_report(const Outcome& outcome);

/// Copies what visit_state() shows on the first member to all others.
Outcome share_state(Group& group, Strategy& strategy, Clock::time_point deadline);

}  // namespace distbelief
