#include "train/evaluate.h"

#include "data/loader.h"

namespace distbelief {

LossSums evaluate(Replica& replica, const Dataset& data, std::int64_t batch) {
  const Sampler in_order(data.size(), 0, false);
  Loader loader(data, in_order, {.batch = batch, .end_epoch = 1});
  LossSums sums;
  while (const Batch* rows = loader.next()) {
    sums += replica.evaluate(*rows);
  }
  return sums;
}

}  // namespace distbelief
