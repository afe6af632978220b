#include "transport/socket/early_memory.h"

#include <gtest/gtest.h>

#include <cstring>

namespace distbelief {
namespace {

constexpr std::size_t kLong = EarlyMemory::kLong;

TEST(EarlyMemory, UsesPagesOfALongMessageForTheNext) {
  EarlyMemory memory;
  EarlyMemory::Piece first = memory.take(2 * kLong);
  const std::byte* place = first.get();
  std::memset(first.get(), 1, 2 * kLong);
  first.reset();
  EXPECT_EQ(memory.spare_bytes(), 2 * kLong);
  const EarlyMemory::Piece second = memory.take(kLong + 1);
  EXPECT_EQ(second.get(), place);
  EXPECT_EQ(memory.spare_bytes(), 0);
}

TEST(EarlyMemory, KeepsTheLargestFew) {
  EarlyMemory memory;
  {
    const EarlyMemory::Piece small = memory.take(kLong - 1);
    const EarlyMemory::Piece large = memory.take(4 * kLong);
    const EarlyMemory::Piece middle = memory.take(2 * kLong);
    const EarlyMemory::Piece least = memory.take(kLong);
    std::memset(small.get(), 1, kLong - 1);
    std::memset(least.get(), 1, kLong);
  }
  EXPECT_EQ(memory.spare_bytes(), 6 * kLong);
}

TEST(EarlyMemory, TakesTheSmallestThatIsLargeEnough) {
  EarlyMemory memory;
  EarlyMemory::Piece large = memory.take(4 * kLong);
  EarlyMemory::Piece middle = memory.take(2 * kLong);
  const std::byte* place = middle.get();
  large.reset();
  middle.reset();
  const EarlyMemory::Piece again = memory.take(2 * kLong);
  EXPECT_EQ(again.get(), place);
  const EarlyMemory::Piece larger = memory.take(5 * kLong);  // pages of its own
  std::memset(larger.get(), 1, 5 * kLong);
  EXPECT_EQ(memory.spare_bytes(), 4 * kLong);
}

}  // namespace
}  // namespace distbelief
