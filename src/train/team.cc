#include "train/team.h"

#include <array>

#include "train/carried_state.h"

namespace distbelief {

Outcome Team::sum(LossSums& sums) const {
  if (across() == nullptr) {
    return {};
  }
  // Counts are exact in a double up to 2^53 samples.
  std::array<double, 3> numbers = {sums.loss, static_cast<double>(sums.correct), static_cast<double>(sums.rows)};
  Outcome outcome = across()->all_reduce(numbers, Clock::now() + patience);
  sums = {numbers[0], static_cast<std::int64_t>(numbers[1]), static_cast<std::int64_t>(numbers[2])};
  return outcome;
}

Outcome Team::sum(double& number) const {
  return group == nullptr ? Outcome{} : group->all_reduce(std::span(&number, 1), Clock::now() + patience);
}

Outcome Team::share(std::string& text) const {
  return group == nullptr ? Outcome{} : share_text(*group, 0, text, Clock::now() + patience);
}

}  // namespace distbelief
