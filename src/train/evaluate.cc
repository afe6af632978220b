#include "train/evaluate.h"

#include "data/loader.h"

namespace distbelief {

LossSums evaluate(Replica& replica, const Dataset& data, std::int64_t batch, int part, int parts) {
  const Sampler in_order(data.size(), 0, false);
  Loader loader(data, in_order, {.batch = batch * parts, .end_epoch = 1, .part = part, .parts = parts});
  constexpr int kBatchesAhead = 32;
  LossSums sums;
  int batches = 0;
  while (const Batch* rows = loader.next()) {
    if (rows->size() > 0) {
      sums += replica.evaluate(*rows);
    }
    if (++batches % kBatchesAhead == 0) {
      LossSums met;  // a stage that is faster than the next waits for it, or what it has sent would pile up
      replica.share(met);
    }
  }
  replica.share(sums);
  return sums;
}

}  // namespace distbelief
