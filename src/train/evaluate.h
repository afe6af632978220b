#pragma once

#include "data/dataset.h"
#include "exec/replica.h"

namespace distbelief {

/// Loss and accuracy of the replica's present values over a data set, or one of several equal shares of it, in
/// inference mode.
LossSums evaluate(Replica& replica, const Dataset& data, std::int64_t batch, int part = 0, int parts = 1);

inline double mean_loss(const LossSums& sums) {
  return sums.rows == 0 ? 0 : sums.loss / static_cast<double>(sums.rows);
}
inline double accuracy(const LossSums& sums) {
  return sums.rows == 0 ? 0 : static_cast<double>(sums.correct) / static_cast<double>(sums.rows);
}

}  // namespace distbelief
