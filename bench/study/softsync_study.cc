// n-softsync with and without the staleness-aware rate (Zhang, Gupta, Lian, Liu: Staleness-aware Async-SGD for
// Distributed Deep Learning, 2015). docs/softsync.md tells what comes out.
//
//   build/release/softsync_study --out bench/results/softsync.json && bench/study/plot.py
//
// λ learners share one ParameterShard. A learner computes the gradient of a mini-batch from the values that it took
// last, pushes it, takes the newest values and goes on; the shard makes an update of each ⌊λ/n⌋ pushes. `hardsync` is
// the base line: an update of each λ pushes, for which all wait. All of it is real (model, gradients, shard) but the
// time: who pushes when is VirtualTime's, so the staleness is the algorithm's and not that of this machine's scheduler.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>
#include <numeric>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/parallel.h"
#include "data/decorators.h"
#include "data/open.h"
#include "data/sampler.h"
#include "exec/replica.h"
#include "models/zoo.h"
#include "params/parameter_shard.h"
#include "plan/parameter_layout.h"
#include "train/evaluate.h"
#include "virtual_time.h"

namespace distbelief {
namespace {

struct Settings {
  std::string model = "examples/models/small-cnn.yaml";
  std::string data = "fashion-mnist";
  int learners = 30;
  std::int64_t batch = 4;
  std::vector<int> n = {1, 2, 5, 10, 15, 30};
  std::vector<std::uint64_t> seeds = {1, 2, 3};
  double rate = 0.1;
  double momentum = 0;
  std::uint64_t samples = 20000;
  std::uint64_t epochs = 1;
  int points = 10;
  VirtualTime::Spread spread;
};

enum class Rate { plain, by_staleness };

/// One training.
struct Run {
  std::uint64_t seed;
  int n;  ///< 0: hardsync
  Rate rate;

  bool waits() const { return n == 0; }
  std::string name() const { return n == 0 ? "hardsync" : fmt::format("{}-softsync", n); }
};

/// What the test samples say in the course of a training.
struct Point {
  std::uint64_t samples;
  double time;   ///< virtual; 1 is about a mini-batch
  double error;  ///< share of the test samples
  double loss;
};

struct RunResult {
  std::vector<Point> points;                         ///< the last is the end's
  std::map<std::uint64_t, std::uint64_t> staleness;  ///< how many pushes had it
  std::uint64_t updates = 0;
  bool finite = true;  ///< false: ended early, as values or loss became infinite or NaN
};

double mean_staleness(const RunResult& result) {
  double sum = 0;
  double pushes = 0;
  for (const auto& [staleness, count] : result.staleness) {
    sum += static_cast<double>(staleness * count);
    pushes += static_cast<double>(count);
  }
  return pushes > 0 ? sum / pushes : 0;
}

/// The paper divides its rate by 10 after 120 and after 130 of 140 epochs.
double decay(std::uint64_t done, std::uint64_t all) {
  return done * 140 < all * 120 ? 1 : (done * 140 < all * 130 ? 0.1 : 0.01);
}

struct Learner {
  std::vector<float> values;  ///< as it took them
  Version seen;
  Batch batch;
  std::uint64_t pushes = 0;
};

/// Of the test samples, for the points on the way; the last point is of all.
constexpr std::uint64_t kCurveSamples = 2000;

class Study {
 public:
  explicit Study(const Settings& settings)
      : settings_(settings), graph_(make_model({.source = settings.model})), table_(layout_parameters(graph_)) {
    const DataSplits splits = open_data({.source = settings.data});
    const Normalization normalization = measure_normalization(*splits.train);
    train_ = normalize(splits.train, normalization);
    test_ = normalize(splits.test, normalization);
    some_test_ =
        std::make_shared<Subset>(test_, Sampler(test_->size(), 0, false), 0, std::min(kCurveSamples, test_->size()));
  }

  std::int64_t parameters() const { return table_.parameter_count(); }

  RunResult train(const Run& run) const {
    Replica replica(graph_, table_, {.seed = run.seed});
    std::vector<float> values(replica.values().size());
    table_.initialize(run.seed, values);
    const auto rule = make_rule({.name = "sgd", .momentum = settings_.momentum});
    ParameterShard shard(table_, table_.everything(), *rule, values);
    UpdateOptions update{.gather = run.waits() ? settings_.learners : std::max(1, settings_.learners / run.n),
                         .staleness_rate = run.rate == Rate::by_staleness};

    VirtualTime time(settings_.learners, run.seed, settings_.spread);
    std::vector<Learner> learners(static_cast<std::size_t>(settings_.learners));
    const Sampler order(std::min(settings_.samples, train_->size()), run.seed, true);
    const std::uint64_t all = order.samples() * settings_.epochs;
    std::uint64_t handed_out = 0;
    const auto begin = [&](int number) {
      Learner& learner = learners[static_cast<std::size_t>(number)];
      learner.values.resize(values.size());
      learner.seen = shard.read(learner.values);
      std::vector<std::uint64_t> ids(static_cast<std::size_t>(settings_.batch));
      for (std::uint64_t& id : ids) {
        id = order.at(handed_out / order.samples(), handed_out % order.samples());
        ++handed_out;
      }
      train_->read(ids, 0, learner.batch);
      time.begin(number);
    };

    RunResult result;
    std::uint64_t pushed = 0;
    std::vector<int> waiting;
    for (int number = 0; number < settings_.learners; ++number) {
      begin(number);
    }
    while (pushed < all && result.finite) {
      const int number = time.next_end();
      Learner& learner = learners[static_cast<std::size_t>(number)];
      update.rate = static_cast<float>(settings_.rate * decay(pushed, all));
      std::ranges::copy(learner.values, replica.values().begin());
      const LossSums sums = replica.compute_gradient(learner.batch);
      const UpdateReport report =
          shard.apply({static_cast<std::uint64_t>(number), learner.pushes++}, replica.gradients(),
                      1.0F / static_cast<float>(sums.rows), update, learner.seen);
      ++result.staleness[report.staleness];
      result.finite = report.finite && std::isfinite(sums.loss);
      const std::uint64_t before = pushed;
      pushed += static_cast<std::uint64_t>(sums.rows);
      const auto points = static_cast<std::uint64_t>(settings_.points);
      if (before * points / all != pushed * points / all || !result.finite) {
        result.points.push_back(measure(replica, values, pushed, time.now(), pushed >= all || !result.finite));
      }
      waiting.push_back(number);
      if (!run.waits() || shard.version() > learner.seen) {
        std::ranges::for_each(waiting, begin);
        waiting.clear();
      }
    }
    result.updates = shard.version().value;
    return result;
  }

 private:
  Point measure(Replica& replica, std::span<const float> values, std::uint64_t samples, double time, bool last) const {
    std::ranges::copy(values, replica.values().begin());
    const LossSums sums = evaluate(replica, last ? *test_ : *some_test_, 500);
    return {samples, time, 1 - accuracy(sums), mean_loss(sums)};
  }

  const Settings& settings_;
  Graph graph_;
  ParameterTable table_;
  std::shared_ptr<const Dataset> train_;
  std::shared_ptr<const Dataset> test_;
  std::shared_ptr<const Dataset> some_test_;
};

/// A number that JSON may lack.
std::string json(double value) { return std::isfinite(value) ? fmt::format("{:.5g}", value) : "null"; }

std::string json(const Run& run, const RunResult& result) {
  std::vector<std::string> points;
  for (const Point& point : result.points) {
    points.push_back(fmt::format("[{}, {:.1f}, {:.4f}, {}]", point.samples, point.time, point.error, json(point.loss)));
  }
  std::vector<std::string> histogram;
  for (const auto& [staleness, count] : result.staleness) {
    histogram.push_back(fmt::format("[{}, {}]", staleness, count));
  }
  return fmt::format(
      R"({{"algorithm": "{}", "n": {}, "rate": "{}", "seed": {}, "error": {:.4f}, "finite": {}, "updates": {}, )"
      R"("virtual_time": {:.1f}, "staleness": {{"mean": {:.3f}, "max": {}, "histogram": [{}]}}, )"
      R"("points": [{}]}})",
      run.waits() ? "hardsync" : "softsync", run.n, run.rate == Rate::plain ? "plain" : "by staleness", run.seed,
      result.points.back().error, result.finite, result.updates, result.points.back().time, mean_staleness(result),
      result.staleness.rbegin()->first, fmt::join(histogram, ", "), fmt::join(points, ", "));
}

int run(int argc, char** argv) {
  CLI::App app("n-softsync with and without the staleness-aware rate, in virtual time");
  Settings settings;
  std::string out = "bench/results/softsync.json";
  app.add_option("--model", settings.model, "a model of the zoo or a model file")->capture_default_str();
  app.add_option("--data", settings.data)->capture_default_str();
  app.add_option("--learners", settings.learners)->capture_default_str();
  app.add_option("--batch", settings.batch, "samples of a gradient")->capture_default_str();
  app.add_option("--n", settings.n, "updates are made of learners / n gradients")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--seeds", settings.seeds)->delimiter(',')->capture_default_str();
  app.add_option("--lr", settings.rate)->capture_default_str();
  app.add_option("--momentum", settings.momentum)->capture_default_str();
  app.add_option("--samples", settings.samples, "of an epoch")->capture_default_str();
  app.add_option("--epochs", settings.epochs)->capture_default_str();
  app.add_option("--points", settings.points, "of a learning curve")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--learner-spread", settings.spread.learner)->capture_default_str();
  app.add_option("--step-spread", settings.spread.step)->capture_default_str();
  app.add_option("--out", out, "JSON")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  set_thread_count(1);
  const Study study(settings);
  std::cout << fmt::format("{} learners, mini-batch {}, {} parameters, rate {}, momentum {}, {} epochs of {} samples\n",
                           settings.learners, settings.batch, study.parameters(), settings.rate, settings.momentum,
                           settings.epochs, settings.samples)
            << fmt::format("{:>4}  {:12} {:13} {:>8} {:>8} {:>16} {:>5} {:>12} {:>8}\n", "seed", "", "rate", "error",
                           "updates", "staleness: mean", "max", "virtual time", "seconds");
  std::vector<std::string> results;
  for (const std::uint64_t seed : settings.seeds) {
    std::vector<Run> runs = {{seed, 0, Rate::plain}};
    for (const int n : settings.n) {
      runs.push_back({seed, n, Rate::plain});
      runs.push_back({seed, n, Rate::by_staleness});
    }
    for (const Run& one : runs) {
      const auto start = Clock::now();
      const RunResult result = study.train(one);
      std::cout << fmt::format("{:4}  {:12} {:13} {:6.2f} % {:8} {:16.2f} {:5} {:12.0f} {:8.1f}{}", seed, one.name(),
                               one.rate == Rate::plain ? "plain" : "by staleness", 100 * result.points.back().error,
                               result.updates, mean_staleness(result), result.staleness.rbegin()->first,
                               result.points.back().time, seconds_since(start),
                               result.finite ? "" : "  values are not finite")
                << std::endl;
      results.push_back(json(one, result));
    }
  }
  const std::filesystem::path file = out;
  if (file.has_parent_path()) {
    std::filesystem::create_directories(file.parent_path());
  }
  write_file_atomically(
      file, fmt::format("{{\"learners\": {}, \"batch\": {}, \"parameters\": {}, \"lr\": {}, \"momentum\": {}, "
                        "\"samples\": {}, \"epochs\": {},\n\"runs\": [\n{}\n]}}\n",
                        settings.learners, settings.batch, study.parameters(), settings.rate, settings.momentum,
                        settings.samples, settings.epochs, fmt::join(results, ",\n")));
  return 0;
}

}  // namespace
}  // namespace distbelief

int main(int argc, char** argv) {
  try {
    return distbelief::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "softsync_study: " << error.what() << "\n";
    return 2;
  }
}
