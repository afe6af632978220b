#include "exec/memory_plan.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace distbelief {
namespace {

TEST(MemoryPlan, PiecesThatNeverMeetShareMemory) {
  const ArenaPlan plan = place_in_arena({{1000, 0, 1}, {1000, 2, 3}, {1000, 4, 5}});
  EXPECT_EQ(plan.bytes, 1024U);
}

TEST(MemoryPlan, PiecesAliveTogetherNeverOverlap) {
  const CounterRandom random(3, RandomUse::generate);
  std::vector<Lifetime> pieces;
  for (int i = 0; i < 200; ++i) {
    const int first = static_cast<int>(random.below(100, 0, i));
    pieces.push_back({1 + random.below(5000, 1, i), first, first + static_cast<int>(random.below(30, 2, i))});
  }
  const ArenaPlan plan = place_in_arena(pieces);
  for (std::size_t a = 0; a < pieces.size(); ++a) {
    EXPECT_EQ(plan.offsets[a] % 64, 0U);
    EXPECT_LE(plan.offsets[a] + pieces[a].bytes, plan.bytes);
    for (std::size_t b = 0; b < a; ++b) {
      const bool together = pieces[a].first <= pieces[b].last && pieces[b].first <= pieces[a].last;
      const bool overlap =
          plan.offsets[a] < plan.offsets[b] + pieces[b].bytes && plan.offsets[b] < plan.offsets[a] + pieces[a].bytes;
      EXPECT_FALSE(together && overlap) << a << " and " << b;
    }
  }
}

}  // namespace
}  // namespace distbelief
