// mpirun -n 2 bench_mpi: round trips between ranks 0 and 1 over MpiFabric, the time of the best of several rounds and
// of all of them.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <vector>

#include "transport/mpi/mpi_fabric.h"

namespace distbelief {
namespace {

constexpr int kRounds = 101;

Clock::time_point soon() { return Clock::now() + std::chrono::seconds(30); }

void need(const Outcome& outcome) {
  if (!outcome.ok()) {
    throw std::runtime_error(fmt::format("rank {}: {}", outcome.peer.value, outcome.reason));
  }
}

void measure(MpiFabric& fabric, std::size_t bytes, int trips) {
  std::vector<std::byte> out(bytes, std::byte{1});
  std::vector<std::byte> in(bytes, std::byte{2});
  const Rank peer{1 - fabric.rank().value};
  const bool first = fabric.rank().value == 0;
  Transfer sent;
  Transfer received;
  std::uint32_t sequence = 0;
  std::vector<double> seconds;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = Clock::now();
    for (int trip = 0; trip < trips; ++trip, ++sequence) {
      fabric.receive(received, peer, {1, sequence}, in);
      if (first) {
        fabric.send(sent, peer, {1, sequence}, out);
      }
      need(fabric.wait(received, soon()));
      if (!first) {
        fabric.send(sent, peer, {1, sequence}, out);
      }
      need(fabric.wait(sent, soon()));
    }
    seconds.push_back(seconds_since(begin) / trips);
  }
  if (first) {
    std::ranges::sort(seconds);
    const double median = seconds[kRounds / 2];
    const auto rate = [&](double time) { return 2e-9 * static_cast<double>(bytes) / time; };
    fmt::print("{:>10} bytes: round trip {:9.2f} us (best {:9.2f}), {:6.2f} GB/s (best {:6.2f})\n", bytes, median * 1e6,
               seconds[0] * 1e6, rate(median), rate(seconds[0]));
  }
}

int run() {
  MpiWorld world(soon());
  if (world.size() != 2) {
    throw std::runtime_error("start it with two ranks");
  }
  {
    MpiFabric fabric(world);
    if (world.rank().value == 0) {
      fmt::print("{}\n", world.library());
    }
    for (const auto& [bytes, trips] : {std::pair<std::size_t, int>{64, 300},
                                       {4096, 100},
                                       {65536, 50},
                                       {std::size_t{1} << 20, 5},
                                       {std::size_t{4} << 20, 2},
                                       {std::size_t{64} << 20, 1}}) {
      measure(fabric, bytes, trips);
    }
  }
  std::fflush(stdout);
  return world.finish(soon()) ? 0 : 1;
}

}  // namespace
}  // namespace distbelief

int main() {
  try {
    const int code = distbelief::run();
    if (code != 0) {
      _exit(code);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_mpi: {}\n", error.what());
    _exit(1);
  }
}
