// Trains one case with --algorithm allreduce in several processes: this engine's side of bench/processes.py.
//
//   mpirun -n N bench_workers --case lenet --batch 128 --threads 1
//
// --batch is of all processes together. Rank 0 speaks the protocol of bench/peers/compare.py; its last line also says
// how long a step's sums took and how much of that was not hidden behind backward.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "base/clock.h"
#include "base/error.h"
#include "bench_cases.h"
#include "exec/replica.h"
#include "metrics/machine.h"
#include "models/zoo.h"
#include "plan/parameter_layout.h"
#include "strategy/all_reduce.h"
#include "transport/mpi/mpi_fabric.h"

namespace distbelief {
namespace {

Clock::time_point patience() { return Clock::now() + std::chrono::minutes(10); }

void require(const Outcome& outcome) {
  if (!outcome.ok()) {
    throw Error(fmt::format("rank {} {}", outcome.peer.value, outcome.reason));
  }
}

struct Options {
  std::string name = "mlp";
  std::int64_t batch = 0;
  int threads = 1;
};

void train(Fabric& fabric, const Options& options) {
  const Case& work = kCases.at(options.name);
  const std::int64_t batch = options.batch == 0 ? work.batch : options.batch;
  Group group(fabric, all_ranks(fabric), 1);
  const std::int64_t share = batch / group.size();
  const Graph graph = make_model({.source = work.model, .data = work.data, .options = {}});
  const ParameterTable table = layout_parameters(graph);
  Replica replica(graph, table,
                  {.threads = options.threads, .mode = faster_thread_mode(graph, share, options.threads)});
  table.initialize(1, replica.values());
  const auto rule = make_rule({.name = "momentum"});
  AllReduce strategy(replica, *rule, group, {.most_rows = share});
  ResidentBatches batches(work, share);
  const auto step = [&](bool stop) {
    const StepReport report = strategy.step(batches, {.update = {.rate = 0.001F}, .stop = stop});
    if (report.outcome != StepReport::Outcome::stepped) {
      throw Error("a step failed: " + report.culprit);
    }
    return report;
  };
  for (int i = 0; i < 5; ++i) {
    (void)step(false);
  }
  const bool first = group.position() == 0;
  if (first) {
    std::cout << "ready" << std::endl;
  }
  std::vector<double> speeds;
  std::int64_t all_steps = 0;
  const double summed_before = strategy.buckets().summing_seconds();
  const double waited_before = strategy.buckets().waiting_seconds();
  for (;;) {
    double length = -1;
    std::string word;
    if (first && std::cin >> word && word == "round") {
      std::cin >> length;
    }
    require(group.broadcast(std::as_writable_bytes(std::span(&length, 1)), 0, patience()));
    if (length < 0) {
      break;
    }
    const auto start = Clock::now();
    std::int64_t steps = 0;
    // The first rank's clock counts; all hear of the end after the same step.
    for (bool over = false; !over; ++steps) {
      over = step(first && seconds_since(start) >= length).stop;
    }
    const double took = seconds_since(start);
    all_steps += steps;
    speeds.push_back(static_cast<double>(steps * share * group.size()) / took);
    if (first) {
      std::cout << fmt::format(R"({{"samples_per_second": {:.2f}, "steps": {}, "seconds": {:.4f}}})", speeds.back(),
                               steps, took)
                << std::endl;
    }
  }
  if (first) {
    std::ranges::sort(speeds);
    const double summing = strategy.buckets().summing_seconds() - summed_before;
    const double waiting = strategy.buckets().waiting_seconds() - waited_before;
    const auto steps = static_cast<double>(std::max<std::int64_t>(all_steps, 1));
    std::cout << fmt::format(R"({{"case": "{}", "processes": {}, "threads": {}, "batch": {}, )"
                             R"("samples_per_second": {:.2f}, "summing_seconds": {:.6f}, "waiting_seconds": {:.6f}, )"
                             R"("hidden": {:.3f}, "peak_rss_bytes": {}}})",
                             options.name, group.size(), options.threads, batch,
                             speeds.empty() ? 0 : speeds[speeds.size() / 2], summing / steps, waiting / steps,
                             summing > 0 ? 1 - std::min(1.0, waiting / summing) : 0, peak_memory_bytes())
              << std::endl;
  }
}

int run(int argc, char** argv) {
  CLI::App app("trains one case of bench/processes.py");
  Options options;
  bool interactive = true;
  app.add_option("--case", options.name)->check(CLI::IsMember(kCases));
  app.add_option("--threads", options.threads);
  app.add_option("--batch", options.batch);
  app.add_flag("--interactive", interactive);
  CLI11_PARSE(app, argc, argv);
  MpiWorld world(patience());
  {
    MpiFabric fabric(world);
    train(fabric, options);
  }
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
    std::cerr << "bench_workers: " << error.what() << "\n";
    _exit(1);  // MPI's exit handlers would wait for the others
  }
}
