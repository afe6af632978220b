#include "strategy/hogwild.h"

#include "base/check.h"

namespace distbelief {

StepReport Hogwild::step(BatchStream& batches, const StepRequest& request) {
  if (!batches.take(first_, 1)) {
    check(batches.next() == nullptr, "the epoch has ended");
    return {.outcome = StepReport::Outcome::end_of_epoch};
  }
  return lanes_.run(batches, first_, request, Clock::now() + kLongestRound, {});
}

}  // namespace distbelief
