// Times all-reduces of several processes, on demand; bench/collectives.py asks.
//
//   mpirun -n N bench_collectives --transport mpi
//   bench_collectives --transport socket --processes N      starts the others itself
//
// Rank 0 says "ready" and reads lines: ALGORITHM BYTES MILLISECONDS, where ALGORITHM is ring, halving, doubling, table
// (what a run would use) or mpi (MPI_Allreduce). For each it prints {"seconds": S}, the time of one all-reduce in a
// batch that took so long; the batch before it, half as long, does not count: processes that slept meanwhile find their
// cores again. "quit" or the end of input ends all.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <iostream>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/group.h"
#include "socket_processes.h"
#include "transport/mpi/mpi_fabric.h"

#ifdef DISTBELIEF_HAS_MPI
#include <mpi.h>
#endif

namespace distbelief {
namespace {

constexpr std::array<const char*, 5> kAlgorithms = {"doubling", "halving", "ring", "table", "mpi"};
constexpr std::uint64_t kTable = 3, kMpi = 4;

Clock::time_point patience() { return Clock::now() + std::chrono::minutes(10); }

void require(const Outcome& outcome) {
  if (!outcome.ok()) {
    throw Error(fmt::format("rank {} {}", outcome.peer.value, outcome.reason));
  }
}

struct Order {
  std::uint64_t algorithm = 0;  ///< place in kAlgorithms; past the end: quit
  std::uint64_t bytes = 0;
  std::uint64_t milliseconds = 0;
};

void reduce(Group& group, std::uint64_t algorithm, std::span<float> data) {
  if (algorithm < kTable) {
    require(group.all_reduce(data, static_cast<Group::Algorithm>(algorithm), patience()));
  } else if (algorithm == kTable) {
    require(group.all_reduce(data, patience()));
  } else {
#ifdef DISTBELIEF_HAS_MPI
    MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
#endif
  }
}

double measure(Group& group, const Order& order) {
  std::vector<float> data(order.bytes / sizeof(float), static_cast<float>(group.position() + 1));
  reduce(group, order.algorithm, data);
  const auto expected = static_cast<float>(group.size() * (group.size() + 1) / 2);
  if (std::ranges::any_of(data, [&](float value) { return value != expected; })) {
    throw Error(fmt::format("{} of {} bytes: a wrong sum", kAlgorithms[order.algorithm], order.bytes));
  }
  std::ranges::fill(data, 0.0F);  // sums of sums would overflow
  for (std::uint64_t iterations = 1;; iterations *= 2) {
    require(group.barrier(patience()));
    const auto start = Clock::now();
    for (std::uint64_t i = 0; i < iterations; ++i) {
      reduce(group, order.algorithm, data);
    }
    double seconds = seconds_since(start);
    require(group.broadcast(std::as_writable_bytes(std::span(&seconds, 1)), 0, patience()));
    if (seconds * 1000 >= static_cast<double>(order.milliseconds)) {
      return seconds / static_cast<double>(iterations);
    }
  }
}

/// From standard input; a line that is none ends the program.
Order read_order(bool has_mpi) {
  Order order{.algorithm = kAlgorithms.size()};
  std::string name;
  if (std::cin >> name && name != "quit") {
    std::cin >> order.bytes >> order.milliseconds;
    order.algorithm = static_cast<std::uint64_t>(std::ranges::find(kAlgorithms, name) - kAlgorithms.begin());
    if (order.algorithm == kAlgorithms.size() || (order.algorithm == kMpi && !has_mpi) || order.milliseconds == 0) {
      throw Error(
          fmt::format("expected ALGORITHM BYTES MILLISECONDS, got '{} {} {}'", name, order.bytes, order.milliseconds));
    }
  }
  return order;
}

void serve(Fabric& fabric, bool has_mpi) {
  Group group(fabric, all_ranks(fabric), 1);
  if (group.position() == 0) {
    std::cout << "ready" << std::endl;
  }
  for (;;) {
    Order order;
    if (group.position() == 0) {
      order = read_order(has_mpi);
    }
    require(group.broadcast(std::as_writable_bytes(std::span(&order, 1)), 0, patience()));
    if (order.algorithm >= kAlgorithms.size()) {
      return;
    }
    const double seconds = measure(group, order);
    if (group.position() == 0) {
      std::cout << fmt::format(R"({{"seconds": {:.9f}}})", seconds) << std::endl;
    }
  }
}

int run(int argc, char** argv) {
  CLI::App app("times all-reduces");
  std::string transport = "mpi";
  int processes = 2, rank = 0;
  std::string folder;
  app.add_option("--transport", transport)->check(CLI::IsMember({"mpi", "socket"}));
  app.add_option("--processes", processes)->check(CLI::Range(2, 64));
  app.add_option("--rank", rank);
  app.add_option("--folder", folder);
  CLI11_PARSE(app, argc, argv);
  if (transport == "socket") {
    SocketProcesses sockets({argv, argv + argc}, processes, rank, folder, patience());
    serve(sockets.fabric(), false);
    return 0;
  }
  MpiWorld world(patience());
  {
    MpiFabric fabric(world);
    serve(fabric, true);
  }
  std::cout.flush();
  if (!world.finish(patience())) {
    _exit(1);
  }
  return 0;
}

}  // namespace
}  // namespace distbelief

int main(int argc, char** argv) {
  try {
    return distbelief::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "bench_collectives: " << error.what() << "\n";
    _exit(1);  // MPI's exit handlers would wait for the others
  }
}
