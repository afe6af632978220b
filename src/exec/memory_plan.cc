#include "exec/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace distbelief {

namespace {
constexpr std::size_t kAlignment = 64;
}

ArenaPlan place_in_arena(const std::vector<Lifetime>& pieces) {
  std::vector<std::size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return pieces[a].bytes > pieces[b].bytes; });

  struct Taken {
    std::size_t begin;
    std::size_t end;
  };
  ArenaPlan plan;
  plan.offsets.resize(pieces.size(), 0);
  std::vector<std::size_t> placed;
  std::vector<Taken> busy;
  for (const std::size_t piece : order) {
    const std::size_t bytes = (pieces[piece].bytes + kAlignment - 1) / kAlignment * kAlignment;
    busy.clear();
    for (const std::size_t other : placed) {
      if (pieces[other].first <= pieces[piece].last && pieces[piece].first <= pieces[other].last) {
        busy.push_back({plan.offsets[other], plan.offsets[other] + pieces[other].bytes});
      }
    }
    std::sort(busy.begin(), busy.end(), [](const Taken& a, const Taken& b) { return a.begin < b.begin; });
    std::size_t offset = 0;
    for (const Taken& taken : busy) {
      if (offset + bytes <= taken.begin) {
        break;
      }
      offset = std::max(offset, (taken.end + kAlignment - 1) / kAlignment * kAlignment);
    }
    plan.offsets[piece] = offset;
    plan.bytes = std::max(plan.bytes, offset + bytes);
    placed.push_back(piece);
  }
  return plan;
}

}  // namespace distbelief
