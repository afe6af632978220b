// This engine's side of bench/peers.sh: trains one case in rounds, on demand. The protocol is told at the head of
// bench/peers/compare.py.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "base/clock.h"
#include "base/error.h"
#include "base/parallel.h"
#include "bench_cases.h"
#include "data/decorators.h"
#include "data/loader.h"
#include "data/open.h"
#include "exec/replica.h"
#include "metrics/machine.h"
#include "models/zoo.h"
#include "params/parameter_shard.h"
#include "plan/parameter_layout.h"
#include "strategy/local.h"
#include "tensor/gemm.h"

namespace distbelief {
namespace {

/// Epochs of Fashion-MNIST, with loading.
class EpochBatches : public BatchStream {
 public:
  explicit EpochBatches(std::int64_t rows) {
    DataSplits splits = open_data({.source = "fashion-mnist"});
    data_ = normalize(splits.train, measure_normalization(*splits.train));
    loader_.emplace(*data_, Sampler(data_->size(), 1, true), LoaderOptions{.batch = rows});
  }
  const Batch* next() override { return loader_->next(); }
  void leased_by_others(std::span<const std::uint64_t> /*ids*/) override {}
  void applied(std::span<const std::uint64_t> /*ids*/) override {}
  void dropped(std::span<const std::uint64_t> /*ids*/) override {}

 private:
  std::shared_ptr<const Dataset> data_;
  std::optional<Loader> loader_;
};

/// The best of several large products: what the machine can do with these threads.
double gemm_peak_gflops(int threads) {
  set_thread_count(threads);
  constexpr std::int64_t kSize = 1536;
  std::vector<float> a(kSize * kSize, 0.5F), b(kSize * kSize, 0.25F), c(kSize * kSize);
  double best = 0;
  for (int i = 0; i < 6; ++i) {
    const auto start = Clock::now();
    gemm(Transpose::no, Transpose::no, kSize, kSize, kSize, a.data(), b.data(), 0, c.data());
    best = std::max(best, 2e-9 * kSize * kSize * kSize / seconds_since(start));
  }
  return best;
}

/// Forward, backward with respect to weights, and to inputs except in the first layers with parameters.
double training_flops(const Graph& graph) {
  double sum = 0;
  bool first = true;
  for (NodeId id = 1; id <= graph.output(); ++id) {
    const auto specs = graph.input_specs(id);
    const bool trains = !graph.node(id).layer->parameters(specs).empty();
    const auto flops = static_cast<double>(graph.node(id).layer->flops(specs));
    sum += flops * (trains ? (first ? 2 : 3) : 2);
    first = first && !trains;
  }
  return sum;
}

int run(int argc, char** argv) {
  CLI::App app("trains one case of bench/peers.sh");
  std::string name = "mlp";
  std::string mode = "auto";
  int threads = 1;
  double seconds = 5;
  std::int64_t batch = 0;
  bool interactive = false;
  app.add_option("--case", name)->check(CLI::IsMember(kCases));
  app.add_option("--threads", threads);
  app.add_option("--seconds", seconds);
  app.add_option("--batch", batch);
  app.add_option("--thread-mode", mode)->check(CLI::IsMember({"auto", "kernels", "lanes"}));
  app.add_flag("--interactive", interactive);
  CLI11_PARSE(app, argc, argv);

  const Case& work = kCases.at(name);
  batch = batch == 0 ? work.batch : batch;
  const Graph graph = make_model({.source = work.model, .data = work.data, .options = {}});
  const ParameterTable table = layout_parameters(graph);
  ReplicaOptions options;
  options.threads = threads;
  options.mode = mode == "auto" ? faster_thread_mode(graph, batch, threads)
                                : (mode == "lanes" ? ThreadMode::lanes : ThreadMode::kernels);
  Replica replica(graph, table, options);
  table.initialize(1, replica.values());
  const auto rule = make_rule({.name = "momentum"});
  Local strategy(replica, *rule);
  const bool epochs = name == "mlp-epoch";
  std::unique_ptr<BatchStream> batches;
  if (epochs) {
    batches = std::make_unique<EpochBatches>(batch);
  } else {
    batches = std::make_unique<ResidentBatches>(work, batch);
  }
  const UpdateOptions update{.rate = 0.001F};
  // One step, or one whole epoch; how many samples it did.
  const auto advance = [&] {
    std::int64_t rows = 0;
    for (;;) {
      const StepReport report = strategy.step(*batches, {.update = update});
      rows += report.sums.rows;
      if (!epochs || report.outcome == StepReport::Outcome::end_of_epoch) {
        return rows;
      }
    }
  };
  std::int64_t all_steps = 0;
  double all_seconds = 0;
  std::vector<double> speeds;
  const auto round = [&](double length) {
    const auto start = Clock::now();
    std::int64_t rows = 0;
    std::int64_t steps = 0;
    do {
      const std::int64_t done = advance();
      rows += done;
      steps += (done + batch - 1) / batch;
    } while (seconds_since(start) < length);
    const double took = seconds_since(start);
    all_steps += steps;
    all_seconds += took;
    speeds.push_back(static_cast<double>(rows) / took);
    return fmt::format(R"({{"samples_per_second": {:.2f}, "steps": {}, "seconds": {:.4f}}})", speeds.back(), steps,
                       took);
  };

  (void)strategy.step(*batches, {.update = update});
  if (interactive) {
    std::cout << R"({"event": "first_step"})" << std::endl;
  }
  const double peak = gemm_peak_gflops(threads);
  advance();
  if (interactive) {
    std::cout << "ready" << std::endl;
    std::string word;
    while (std::cin >> word && word != "quit") {
      double length = 0;
      std::cin >> length;
      std::cout << round(length) << std::endl;
    }
  } else {
    for (int i = 0; i < 5; ++i) {
      round(seconds / 5);
    }
  }
  std::sort(speeds.begin(), speeds.end());
  const double median = speeds.empty() ? 0 : speeds[speeds.size() / 2];
  const double flops = training_flops(graph);
  std::cout
      << fmt::format(
             R"({{"case": "{}", "threads": {}, "batch": {}, "samples_per_second": {:.2f}, "step_seconds": {:.6f}, )"
             R"("peak_rss_bytes": {}, "flops_per_sample": {:.0f}, "gemm_peak_gflops": {:.2f}, )"
             R"("of_peak": {:.3f}, "thread_mode": "{}", "versions": {{"distbelief": "0.1.0"}}}})",
             name, threads, batch, median, all_steps > 0 ? all_seconds / static_cast<double>(all_steps) : 0,
             peak_memory_bytes(), flops, peak, median * flops * 1e-9 / peak, thread_mode_name(options.mode))
      << std::endl;
  return 0;
}

}  // namespace
}  // namespace distbelief

int main(int argc, char** argv) {
  try {
    return distbelief::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "bench_engine: " << error.what() << "\n";
    return 2;
  }
}
