#include "train/evaluate.h"

#include "data/loader.h"

namespace distbelief {

LossSums evaluate(Replica& replica, const Dataset& data, std::int64_t batch, int part, int parts) {
  const Sampler in_order(data.size(), 0, false);
  Loader loader(data, in_order, {.batch = batch * parts, .end_epoch = 1, .part = part, .parts = parts});
  LossSums sums;
  while (const Batch* rows = loader.next()) {
    if (rows->size() > 0) {
      sums += replica.evaluate(*rows);
    }
  }
  replica.share(sums);
  return sums;
}

}  // namespace distbelief
