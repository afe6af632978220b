#include <atomic>
#include <thread>

#include "transport/fabric_contract.h"
#include "transport/local/local_fabric.h"
#include "transport/locked/locked_fabric.h"
#include "transport/socket/socket_fabric.h"

namespace distbelief {
namespace {

struct Listeners {
  explicit Listeners(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      made.push_back(std::make_unique<SocketListener>(Address::tcp("127.0.0.1", 0)));
      addresses.emplace(rank, made.back()->address());
    }
  }
  std::vector<std::unique_ptr<SocketListener>> made;
  std::map<int, Address> addresses;
};

constexpr std::uint32_t kView = 7;

/// All but the last began together; it came later.
std::vector<std::unique_ptr<Fabric>> make_grown_fabrics(int ranks) {
  Listeners listeners(ranks);
  std::vector<std::unique_ptr<Fabric>> firsts = make_local_fabrics(ranks - 1);
  firsts.push_back(nullptr);
  std::vector<std::unique_ptr<Fabric>> fabrics(static_cast<std::size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        const auto index = static_cast<std::size_t>(rank);
        auto fabric = make_growing_fabric(Rank{rank}, std::move(firsts[index]), std::move(listeners.made[index]),
                                          {.token = "secret", .job = "test"});
        const GrowingFabric::Grown grown = fabric->grow(
            listeners.addresses, rank == ranks - 1 ? 1 : kView, [](Rank) { return false; }, fabric_contract::far());
        EXPECT_TRUE(grown.ok) << grown.reason;
        EXPECT_EQ(grown.view, rank == ranks - 1 ? kView : 0);  // as those say who are there
        fabrics[index] = std::move(fabric);
      });
    }
  }
  return fabrics;
}

DISTBELIEF_INSTANTIATE_FABRIC_CONTRACT(Growing, make_grown_fabrics)

/// As a worker has them that has a part of a network.
std::vector<std::unique_ptr<Fabric>> make_locked_grown_fabrics(int ranks) {
  std::vector<std::unique_ptr<Fabric>> fabrics = make_grown_fabrics(ranks);
  for (std::unique_ptr<Fabric>& fabric : fabrics) {
    fabric = std::make_unique<LockedFabric>(std::move(fabric));
  }
  return fabrics;
}

DISTBELIEF_INSTANTIATE_FABRIC_CONTRACT(LockedGrowing, make_locked_grown_fabrics)

TEST(GrowingFabric, WhoNeverComesIsWaitedForUntilItIsGivenUp) {
  Listeners listeners(3);
  std::vector<std::unique_ptr<Fabric>> firsts = make_local_fabrics(2);
  const auto fabric =
      make_growing_fabric(Rank{0}, std::move(firsts[0]), std::move(listeners.made[0]), {.token = "t", .job = "j"});
  std::atomic<int> asked = 0;
  const GrowingFabric::Grown grown = fabric->grow(
      listeners.addresses, kView, [&](Rank rank) { return rank == Rank{2} && ++asked > 2; }, fabric_contract::far());
  EXPECT_TRUE(grown.ok);
  EXPECT_GT(asked, 2);
}

TEST(GrowingFabric, WhoIsNotGivenUpIsNamedAtTheDeadline) {
  Listeners listeners(2);
  const auto fabric = make_growing_fabric(Rank{1}, nullptr, std::move(listeners.made[1]), {.token = "t", .job = "j"});
  listeners.made[0].reset();
  const GrowingFabric::Grown grown = fabric->grow(
      listeners.addresses, kView, [](Rank) { return false; }, Clock::now() + std::chrono::milliseconds(120));
  EXPECT_FALSE(grown.ok);
  EXPECT_EQ(grown.culprit, Rank{0});
  EXPECT_FALSE(grown.reason.empty());
}

}  // namespace
}  // namespace distbelief
