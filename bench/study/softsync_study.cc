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
  double rate = 0.03;
  double momentum = 0;
  std::uint64_t samples = 60000;
  std::uint64_t epochs = 2;
  int points = 12;
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

/// What the rate is multiplied with: two steps down near the end, so that runs are compared where they settle and not
/// by the noise of their last updates.
double decay(std::uint64_t done, std::uint64_t all) {
  return done * 14 < all * 12 ? 1 : (done * 14 < all * 13 ? 0.1 : 0.01);
}

/// Model and data, the same for all runs. Immutable.
struct Subject {
  explicit Subject(const Settings& settings)
      : graph(make_model({.source = settings.model})), table(layout_parameters(graph)) {
    const DataSplits splits = open_data({.source = settings.data});
    const Normalization normalization = measure_normalization(*splits.train);
    train = normalize(splits.train, normalization);
    test = normalize(splits.test, normalization);
    some_test =
        std::make_shared<Subset>(test, Sampler(test->size(), 0, false), 0, std::min(kCurveSamples, test->size()));
  }

  static constexpr std::uint64_t kCurveSamples = 2000;

  Graph graph;
  ParameterTable table;
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> test;
  std::shared_ptr<const Dataset> some_test;  ///< for the points on the way; the last point is of all
};

/// One run. All learners compute in one replica, one after the other, each from its own copy of the values.
class Training {
 public:
  Training(const Settings& settings, const Subject& subject, const Run& run)
      : settings_(settings),
        subject_(subject),
        run_(run),
        order_(std::min(settings.samples, subject.train->size()), run.seed, true),
        all_(order_.samples() * settings.epochs),
        replica_(subject.graph, subject.table, {.seed = run.seed}),
        values_(replica_.values().size()),
        rule_(make_rule({.name = "sgd", .momentum = settings.momentum})),
        shard_(subject.table, subject.table.everything(), *rule_, values_),
        time_(settings.learners, run.seed, settings.spread),
        learners_(static_cast<std::size_t>(settings.learners)) {
    subject.table.initialize(run.seed, values_);
  }

  RunResult train() {
    for (int number = 0; number < settings_.learners; ++number) {
      begin(number);
    }
    std::vector<int> waiting;
    while (pushed_ < all_ && result_.finite) {
      const int number = time_.next_end();
      const bool updated = push(number);
      waiting.push_back(number);
      if (updated || !run_.waits()) {
        std::ranges::for_each(waiting, [this](int one) { begin(one); });
        waiting.clear();
      }
    }
    result_.updates = shard_.version().value;
    return result_;
  }

 private:
  struct Learner {
    std::vector<float> values;  ///< as it took them
    Version seen;
    Batch batch;
    std::uint64_t pushes = 0;
  };

  Learner& learner(int number) { return learners_[static_cast<std::size_t>(number)]; }

  /// The learner takes the newest values and the next samples, and computes from now on.
  void begin(int number) {
    Learner& one = learner(number);
    one.values.resize(values_.size());
    one.seen = shard_.read(one.values);
    std::vector<std::uint64_t> ids(static_cast<std::size_t>(settings_.batch));
    for (std::uint64_t& id : ids) {
      id = order_.at(taken_ / order_.samples(), taken_ % order_.samples());
      ++taken_;
    }
    subject_.train->read(ids, 0, one.batch);
    time_.begin(number);
  }

  /// The learner's gradient is ready and goes to the shard. Whether this made an update.
  bool push(int number) {
    Learner& one = learner(number);
    std::ranges::copy(one.values, replica_.values().begin());
    const LossSums sums = replica_.compute_gradient(one.batch);
    const Version before = shard_.version();
    const UpdateReport report = shard_.apply({static_cast<std::uint64_t>(number), one.pushes++}, replica_.gradients(),
                                             1.0F / static_cast<float>(sums.rows), update_options(), one.seen);
    ++result_.staleness[report.staleness];
    result_.finite = report.finite && std::isfinite(sums.loss);
    const std::uint64_t points_before = points_due();
    pushed_ += static_cast<std::uint64_t>(sums.rows);
    if (points_due() != points_before || !result_.finite) {
      measure();
    }
    return report.version > before;
  }

  UpdateOptions update_options() const {
    return {.rate = static_cast<float>(settings_.rate * decay(pushed_, all_)),
            .gather = run_.waits() ? settings_.learners : std::max(1, settings_.learners / run_.n),
            .staleness_rate = run_.rate == Rate::by_staleness};
  }

  std::uint64_t points_due() const { return pushed_ * static_cast<std::uint64_t>(settings_.points) / all_; }

  void measure() {
    const bool last = pushed_ >= all_ || !result_.finite;
    std::ranges::copy(values_, replica_.values().begin());
    const LossSums sums = evaluate(replica_, last ? *subject_.test : *subject_.some_test, 500);
    result_.points.push_back({pushed_, time_.now(), 1 - accuracy(sums), mean_loss(sums)});
  }

  const Settings& settings_;
  const Subject& subject_;
  const Run run_;
  const Sampler order_;
  const std::uint64_t all_;  ///< samples of the run
  Replica replica_;
  std::vector<float> values_;  ///< the shard's
  std::unique_ptr<UpdateRule> rule_;
  ParameterShard shard_;
  VirtualTime time_;
  std::vector<Learner> learners_;
  std::uint64_t taken_ = 0;   ///< samples that learners have begun
  std::uint64_t pushed_ = 0;  ///< samples whose gradient the shard has
  RunResult result_;
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

/// All that is done so far: a study that is broken off leaves a whole file.
void save(const std::filesystem::path& file, const Settings& settings, std::int64_t parameters,
          const std::vector<std::string>& results) {
  if (file.has_parent_path()) {
    std::filesystem::create_directories(file.parent_path());
  }
  write_file_atomically(
      file, fmt::format("{{\"learners\": {}, \"batch\": {}, \"parameters\": {}, \"lr\": {}, \"momentum\": {}, "
                        "\"samples\": {}, \"epochs\": {},\n\"runs\": [\n{}\n]}}\n",
                        settings.learners, settings.batch, parameters, settings.rate, settings.momentum,
                        settings.samples, settings.epochs, fmt::join(results, ",\n")));
}

std::vector<Run> runs_of(std::uint64_t seed, const Settings& settings) {
  std::vector<Run> runs = {{seed, 0, Rate::plain}};
  for (const int n : settings.n) {
    runs.push_back({seed, n, Rate::plain});
    runs.push_back({seed, n, Rate::by_staleness});
  }
  return runs;
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
  const Subject subject(settings);
  std::cout << fmt::format("{} learners, mini-batch {}, {} parameters, rate {}, momentum {}, {} epochs of {} samples\n",
                           settings.learners, settings.batch, subject.table.parameter_count(), settings.rate,
                           settings.momentum, settings.epochs, settings.samples)
            << fmt::format("{:>4}  {:12} {:13} {:>8} {:>8} {:>16} {:>5} {:>12} {:>8}\n", "seed", "", "rate", "error",
                           "updates", "staleness: mean", "max", "virtual time", "seconds");
  std::vector<std::string> results;
  for (const std::uint64_t seed : settings.seeds) {
    for (const Run& one : runs_of(seed, settings)) {
      const auto start = Clock::now();
      const RunResult result = Training(settings, subject, one).train();
      std::cout << fmt::format("{:4}  {:12} {:13} {:6.2f} % {:8} {:16.2f} {:5} {:12.0f} {:8.1f}{}", seed, one.name(),
                               one.rate == Rate::plain ? "plain" : "by staleness", 100 * result.points.back().error,
                               result.updates, mean_staleness(result), result.staleness.rbegin()->first,
                               result.points.back().time, seconds_since(start),
                               result.finite ? "" : "  values are not finite")
                << std::endl;
      results.push_back(json(one, result));
      save(out, settings, subject.table.parameter_count(), results);
    }
  }
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
