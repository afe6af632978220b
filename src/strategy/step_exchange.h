#pragma once

#include <string>
#include <vector>

#include "comm/group.h"
#include "strategy/strategy.h"

namespace distbelief {

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

  /// When losses were not finite: all tell what they found (may be empty) and all get the first that is not.
  Outcome tell_culprit(std::string& culprit, Clock::time_point deadline);

 private:
  Group& group_;
  const std::size_t slot_;  ///< numbers of one member
  std::vector<std::uint64_t> numbers_;
};

/// "rank 2 closed the connection".
std::string lost_text(const Outcome& outcome);

/// Copies what visit_state() shows on the first member to all others.
Outcome share_state(Group& group, Strategy& strategy, Clock::time_point deadline);

}  // namespace distbelief
