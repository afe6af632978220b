// bench_sparse: logistic regression on sparse samples through a parameter server: samples/s when workers exchange what
// their batches touch, and when they exchange everything.
//
//   build/release/bench_sparse                                  1,000,000 features, 1 and 2 workers, sgd
//   build/release/bench_sparse --features 50000 --rule adagrad --workers 2
//
// Server and workers are threads of this process, with links that copy from memory to memory: real links only make long
// messages dearer. All ways to exchange take turns; medians of the rounds are shown. Batches are made beforehand, with
// columns that follow a power law, so that some are in nearly every batch. KB are those of a push and of a fetch
// together, computed, not measured; what is fetched whole is all of it, as each push changes every block.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <iostream>
#include <set>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "graph/layers/dense.h"
#include "graph/losses/softmax_cross_entropy.h"
#include "plan/parameter_layout.h"
#include "server/served_job.h"
#include "strategy/downpour.h"

namespace distbelief {
namespace {

constexpr int kClasses = 2;
constexpr std::uint64_t kBatches = 64;  // different ones

struct Settings {
  std::int64_t features = 1'000'000;
  std::int64_t nonzeros = 50;
  std::int64_t batch = 100;
  std::string rule = "sgd";
  int servers = 1;
  std::vector<int> workers = {1, 2};
  int rounds = 5;
  int milliseconds = 1000;
};

Batch sparse_batch(const Settings& settings, std::uint64_t number) {
  const CounterRandom random(1, RandomUse::generate);
  Batch batch;
  for (std::int64_t row = 0; row < settings.batch; ++row) {
    std::set<std::int32_t> columns;
    for (std::int64_t k = 0; k < settings.nonzeros; ++k) {
      const auto draw = static_cast<std::uint64_t>(row * settings.nonzeros + k);
      const double power = random.uniform(number, draw);
      columns.insert(static_cast<std::int32_t>(std::min(std::pow(static_cast<double>(settings.features), power),
                                                        static_cast<double>(settings.features - 1))));
    }
    batch.ids.push_back(static_cast<std::uint64_t>(row));
    batch.classes.push_back(static_cast<std::int32_t>(*columns.rbegin() % kClasses));
    batch.sparse.columns.insert(batch.sparse.columns.end(), columns.begin(), columns.end());
    batch.sparse.values.resize(batch.sparse.columns.size(), 0.1F);
    batch.sparse.offsets.push_back(static_cast<std::int64_t>(batch.sparse.columns.size()));
  }
  return batch;
}

/// The same batches again and again, each a unit, all of one lease.
class Units : public BatchStream {
 public:
  Units(const std::vector<Batch>& batches, std::uint64_t lease) : batches_(batches), lease_(lease), next_(lease * 7) {}
  const Batch* next() override { return &batches_[next_++ % batches_.size()]; }
  PushUnit unit() const override { return {.id = {lease_, next_ - 7 * lease_ - 1}}; }
  void leased_by_others(std::span<const std::uint64_t> /*ids*/) override {}
  void applied(std::span<const std::uint64_t> /*ids*/) override {}
  void dropped(std::span<const std::uint64_t> /*ids*/) override {}

 private:
  const std::vector<Batch>& batches_;
  const std::uint64_t lease_;
  std::uint64_t next_;
};

struct Way {
  std::string name;
  GradientRows rows;
  bool prefetch;
};
const std::vector<Way> kWays = {{"everything", GradientRows::all, false},
                                {"everything, prefetched", GradientRows::all, true},
                                {"touched pushes, prefetched fetches of everything", GradientRows::touched, true},
                                {"touched", GradientRows::touched, false}};

class Bench {
 public:
  explicit Bench(const Settings& settings) : settings_(settings), rule_(make_rule({.name = settings.rule})) {
    const NodeId input = graph_.add_input({settings.features}, ValueKind::sparse);
    graph_.add("dense", std::make_shared<Dense>(DenseOptions{.units = kClasses}), {input});
    graph_.finish(std::make_shared<SoftmaxCrossEntropy>());
    table_ = layout_parameters(graph_);
    start_.resize(static_cast<std::size_t>(table_.size()));
    table_.initialize(1, start_);
    for (std::uint64_t i = 0; i < kBatches; ++i) {
      batches_.push_back(sparse_batch(settings, i));
    }
  }

  /// Of all workers together.
  double samples_per_second(const Way& way, int workers) const {
    ServedJob job(table_, *rule_, start_, settings_.servers, workers, {.rate = 0.01F});
    std::atomic<std::int64_t> samples = 0;
    std::atomic<bool> measures = false, ends = false;
    std::vector<std::jthread> threads;
    for (int i = 0; i < workers; ++i) {
      threads.emplace_back([&, i] {
        Replica replica(graph_, table_, {.gradient_rows = way.rows});
        Downpour downpour(replica, *rule_, job.client(i), {.prefetch = way.prefetch});
        Units units(batches_, static_cast<std::uint64_t>(i) + 1);
        while (!ends) {
          const StepReport report = downpour.step(units, {.update = {.rate = 0.01F}});
          check(report.outcome == StepReport::Outcome::stepped, "a step is made");
          samples += measures ? report.sums.rows : 0;
        }
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(settings_.milliseconds / 4));  // until all is warm
    measures = true;
    const Clock::time_point begin = Clock::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(settings_.milliseconds));
    measures = false;
    const double speed = static_cast<double>(samples) / seconds_since(begin);
    ends = true;
    return speed;
  }

  double kilobytes(const Way& way) const {
    const double whole = static_cast<double>(table_.size()) * sizeof(float);
    Replica replica(graph_, table_, {.gradient_rows = GradientRows::touched});
    const BlockMap map(table_, 1);
    std::vector<int> blocks(map.blocks().size());
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      blocks[i] = static_cast<int>(i);
    }
    TouchedRuns runs(table_, map, std::span(&blocks, 1));
    double touched = 0;
    for (const Batch& batch : batches_) {
      runs.find(replica.prepare(batch, 0, batch.size()));
      touched += static_cast<double>(runs.servers()[0].bytes()) / static_cast<double>(batches_.size());
    }
    return 1e-3 * ((way.rows == GradientRows::all ? whole : touched) +
                   (way.rows == GradientRows::all || way.prefetch ? whole : touched));
  }

  std::int64_t parameters() const { return table_.parameter_count(); }

 private:
  const Settings settings_;
  const std::unique_ptr<UpdateRule> rule_;
  Graph graph_ = Graph("logistic");
  ParameterTable table_;
  std::vector<float> start_;
  std::vector<Batch> batches_;
};

void run(const Settings& settings) {
  const Bench bench(settings);
  std::cout << fmt::format("{} features, {} parameters, {} drawn a sample, batch {}, {}, servers {}\n",
                           settings.features, bench.parameters(), settings.nonzeros, settings.batch, settings.rule,
                           settings.servers)
            << fmt::format("{:>7}  {:50}{:>10}  {:>23}{:>9}{:>10}\n", "workers", "exchanged", "samples/s",
                           "lowest to highest", "times", "KB a step");
  for (const int workers : settings.workers) {
    std::vector<std::vector<double>> speeds(kWays.size());
    for (int round = 0; round < settings.rounds; ++round) {
      for (std::size_t i = 0; i < kWays.size(); ++i) {
        speeds[i].push_back(bench.samples_per_second(kWays[i], workers));
      }
    }
    for (std::vector<double>& one : speeds) {
      std::ranges::sort(one);
    }
    const auto median = [](const std::vector<double>& sorted) { return sorted[sorted.size() / 2]; };
    for (std::size_t i = 0; i < kWays.size(); ++i) {
      std::cout << fmt::format("{:7}  {:50}{:10.0f}  {:>23}{:9.2f}{:10.0f}\n", workers, kWays[i].name,
                               median(speeds[i]), fmt::format("{:.0f} to {:.0f}", speeds[i].front(), speeds[i].back()),
                               median(speeds[i]) / median(speeds[0]), bench.kilobytes(kWays[i]));
    }
  }
}

}  // namespace
}  // namespace distbelief

int main(int argc, char** argv) {
  distbelief::Settings settings;
  CLI::App app("Sparse samples through a parameter server: what batches touch against everything");
  app.add_option("--features", settings.features)->check(CLI::Range(1000, 1'000'000'000));
  app.add_option("--nonzeros", settings.nonzeros)->check(CLI::PositiveNumber);
  app.add_option("--batch", settings.batch)->check(CLI::PositiveNumber);
  app.add_option("--rule", settings.rule);
  app.add_option("--servers", settings.servers)->check(CLI::PositiveNumber);
  app.add_option("--workers", settings.workers)->check(CLI::PositiveNumber)->delimiter(',');
  app.add_option("--rounds", settings.rounds)->check(CLI::PositiveNumber);
  app.add_option("--milliseconds", settings.milliseconds)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    distbelief::run(settings);
  } catch (const distbelief::Error& error) {
    std::cerr << "bench_sparse: " << error.what() << "\n";
    return 2;
  }
  return 0;
}
