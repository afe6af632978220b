#pragma once

#include <cstdint>
#include <vector>

#include "data/dataset.h"

namespace distbelief {

/// For tests: these samples as one batch.
inline Batch read_samples(const Dataset& data, const std::vector<std::uint64_t>& ids, std::uint64_t epoch = 0) {
  Batch batch;
  data.read(ids, epoch, batch);
  return batch;
}

}  // namespace distbelief
