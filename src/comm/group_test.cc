#include "comm/group.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <functional>

#include "base/random.h"
#include "base/test_deadline.h"
#include "comm/run_ranks.h"

namespace distbelief {
namespace {

using std::chrono::seconds;

std::vector<float> numbers_of(int rank, std::size_t count) {
  const CounterRandom random(7, RandomUse::generate);
  std::vector<float> numbers(count);
  for (std::size_t i = 0; i < count; ++i) {
    numbers[i] = random.uniform(static_cast<std::uint64_t>(rank), i) - 0.5F;
  }
  return numbers;
}

std::vector<float> sum_of(int ranks, std::size_t count) {
  std::vector<float> sum(count);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<float> numbers = numbers_of(rank, count);
    std::ranges::transform(sum, numbers, sum.begin(), std::plus<>());
  }
  return sum;
}

void expect_close(std::span<const float> found, std::span<const float> wanted, const std::string& what) {
  ASSERT_EQ(found.size(), wanted.size());
  const auto close = [](float one, float other) { return std::abs(one - other) <= 1e-5F; };
  const auto [apart, there] = std::ranges::mismatch(found, wanted, close);
  ASSERT_EQ(apart, found.end()) << what << ", element " << apart - found.begin() << " is " << *apart << ", not "
                                << *there;
}

constexpr Group::Algorithm kAlgorithms[] = {Group::Algorithm::doubling, Group::Algorithm::halving,
                                            Group::Algorithm::ring};

TEST(Group, AllReduceGivesEveryMemberTheSameBits) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{5}, std::size_t{1000}, std::size_t{300'000}}) {
    std::vector<std::vector<float>> numbers;
    std::vector<float> sum(count);
    for (int ranks = 1; ranks <= 7; ++ranks) {
      numbers.push_back(numbers_of(ranks - 1, count));
      std::ranges::transform(sum, numbers.back(), sum.begin(), std::plus<>());
      for (const Group::Algorithm algorithm : kAlgorithms) {
        std::vector<std::vector<float>> results = numbers;
        run_ranks(ranks, [&](Fabric& fabric) {
          Group group(fabric, all_ranks(fabric), 1);
          const Outcome outcome =
              group.all_reduce(results[static_cast<std::size_t>(fabric.rank().value)], algorithm, soon());
          EXPECT_TRUE(outcome.ok()) << outcome.reason;
        });
        const std::string what = fmt::format("algorithm {}, {} members", static_cast<int>(algorithm), ranks);
        expect_close(results[0], sum, what);
        for (const std::vector<float>& other : results) {
          EXPECT_EQ(other, results[0]) << what;
        }
      }
    }
  }
}

TEST(Group, CollectivesFollowEachOtherWithoutABarrier) {
  run_ranks(3, [&](Fabric& fabric) {
    Group group(fabric, all_ranks(fabric), 1);
    for (int round = 0; round < 50; ++round) {
      std::vector<float> data(1 + static_cast<std::size_t>(round) * 37, 1.0F);
      ASSERT_TRUE(group.all_reduce(data, soon()).ok());
      ASSERT_EQ(data, std::vector<float>(data.size(), 3.0F));
      std::array<double, 2> sums = {static_cast<double>(group.position()), 0.5};
      ASSERT_TRUE(group.all_reduce(sums, soon()).ok());
      ASSERT_EQ(sums[0], 3.0);
      ASSERT_EQ(sums[1], 1.5);
    }
  });
}

TEST(Group, ReduceScatterThenAllGatherIsAnAllReduce) {
  for (const int ranks : {2, 3, 5}) {
    constexpr std::size_t kCount = 1001;
    run_ranks(ranks, [&](Fabric& fabric) {
      Group group(fabric, all_ranks(fabric), 1);
      std::vector<float> data = numbers_of(fabric.rank().value, kCount);
      ASSERT_TRUE(group.reduce_scatter(data, soon()).ok());
      const std::vector<float> wanted = sum_of(ranks, kCount);
      const Group::Part part = Group::part(kCount, group.position(), ranks);
      expect_close(std::span(data).subspan(part.begin, part.size), std::span(wanted).subspan(part.begin, part.size),
                   "part");
      ASSERT_TRUE(group.all_gather(data, soon()).ok());
      expect_close(data, wanted, "all");
    });
  }
}

TEST(Group, AnyMemberCanBeTheRoot) {
  constexpr std::size_t kCount = 70'000;
  const std::vector<float> later = numbers_of(99, kCount);
  for (const int ranks : {1, 2, 3, 4, 6}) {
    const std::vector<float> sum = sum_of(ranks, kCount);
    for (int root = 0; root < ranks; ++root) {
      run_ranks(ranks, [&](Fabric& fabric) {
        Group group(fabric, all_ranks(fabric), 1);
        std::vector<float> data = numbers_of(fabric.rank().value, kCount);
        ASSERT_TRUE(group.reduce(data, root, soon()).ok());
        if (group.position() == root) {
          expect_close(data, sum, "root");
          data = later;
        }
        ASSERT_TRUE(group.broadcast(std::as_writable_bytes(std::span(data)), root, soon()).ok());
        ASSERT_EQ(data, later);
      });
    }
  }
}

TEST(Group, SubsetsOfAJobExchangeAtTheSameTime) {
  run_ranks(4, [&](Fabric& fabric) {
    const int self = fabric.rank().value;
    Group pair(fabric, {Rank{self % 2}, Rank{self % 2 + 2}}, 1 + static_cast<std::uint32_t>(self % 2));
    std::vector<float> data = {static_cast<float>(self)};
    ASSERT_TRUE(pair.all_reduce(data, soon()).ok());
    ASSERT_EQ(data[0], self % 2 == 0 ? 2.0F : 4.0F);
  });
}

TEST(Group, ABarrierHoldsUntilAllHaveCome) {
  std::atomic<int> came = 0;
  run_ranks(5, [&](Fabric& fabric) {
    Group group(fabric, all_ranks(fabric), 1);
    came.fetch_add(1);
    ASSERT_TRUE(group.barrier(soon()).ok());
    EXPECT_EQ(came.load(), 5);
  });
}

TEST(Group, AMemberThatLeavesEndsTheOthersCollective) {
  for (const Group::Algorithm algorithm : kAlgorithms) {
    run_ranks(4, [&](Fabric& fabric) {
      if (fabric.rank().value == 2) {
        return;
      }
      Group group(fabric, all_ranks(fabric), 1);
      std::vector<float> data(200'000, 1.0F);
      const Outcome outcome = group.all_reduce(data, algorithm, soon());
      EXPECT_EQ(outcome.kind, Outcome::Kind::peer_lost);
    });
  }
}

TEST(Group, AMemberThatDoesNotComeIsNamedAtTheDeadline) {
  std::atomic<bool> done = false;
  run_ranks(2, [&](Fabric& fabric) {
    if (fabric.rank().value == 1) {
      while (!done) {
        std::this_thread::yield();
      }
      return;
    }
    Group group(fabric, all_ranks(fabric), 1);
    std::vector<float> data(10, 1.0F);
    const Outcome outcome = group.all_reduce(data, Clock::now() + std::chrono::milliseconds(5));
    EXPECT_EQ(outcome.kind, Outcome::Kind::timed_out);
    EXPECT_EQ(outcome.peer, Rank{1});
    done = true;
  });
}

}  // namespace
}  // namespace distbelief
