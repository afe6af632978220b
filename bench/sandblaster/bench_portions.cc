// bench_portions: time of one evaluation of Sandblaster's objective when one worker is five times slower, with backup
// portions and without, against the ideal for that much capacity.
//
//   build/release/bench_portions
//   build/release/bench_portions --workers 8 --portions 400 --slowness 10
//
// Servers and workers are threads. A sample costs a wait of fixed length and no computing, so that the cores of this
// machine do not decide. Ideal is the work divided by the sum of the workers' speeds.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "data/synthetic.h"
#include "graph/layers/dense.h"
#include "graph/losses/softmax_cross_entropy.h"
#include "train/portion_job.h"

namespace distbelief {
namespace {

thread_local double slowness = 1;  // of the worker that this thread is

/// Passes its input on, after a while for each row.
class Waiting : public Layer {
 public:
  explicit Waiting(std::chrono::microseconds each) : each_(each) {}
  std::string_view type() const override { return "waiting"; }
  ValueSpec output(ValueSpecs inputs) const override { return inputs[0]; }
  std::unique_ptr<Kernel> compile(const Engine& /*engine*/, ValueLayouts inputs, Purpose /*purpose*/) const override {
    return std::make_unique<WaitingKernel>(inputs[0], each_);
  }

 private:
  class WaitingKernel : public Kernel {
   public:
    WaitingKernel(const ValueLayout& value, std::chrono::microseconds each)
        : Kernel(value), rows_(value.spec.shape[0]), floats_(value.spec.shape.elements()), each_(each) {}
    void forward(const StepContext& /*step*/) override {
      std::this_thread::sleep_for(slowness * static_cast<double>(rows_) * each_);
      std::copy_n(static_cast<const float*>(memory_.inputs[0]), floats_, memory_.output);
    }
    void backward(const StepContext& /*step*/) override {
      if (memory_.input_gradients[0] != nullptr) {
        std::copy_n(memory_.output_gradient, floats_, memory_.input_gradients[0]);
      }
    }

   private:
    const std::int64_t rows_;
    const std::int64_t floats_;
    const std::chrono::microseconds each_;
  };

  const std::chrono::microseconds each_;
};

struct Settings {
  int workers = 4;
  std::int64_t portions = 200;
  std::int64_t portion = 32;
  int microseconds = 300;
  double slowness = 5;
  int evaluations = 5;
};

/// Seconds of each evaluation but the first, sorted.
std::vector<double> seconds_of(const Settings& settings, bool backups, PortionTable::Counts& counts) {
  const SyntheticSplits data = make_synthetic(
      {.shape = Shape{16}, .classes = 2, .samples = static_cast<std::uint64_t>(settings.portions * settings.portion)});
  Graph graph("waiting");
  NodeId x = graph.add_input({16});
  x = graph.add("waiting", std::make_shared<Waiting>(std::chrono::microseconds(settings.microseconds)), {x});
  graph.add("output", std::make_shared<Dense>(DenseOptions{.units = 2}), {x});
  graph.finish(std::make_shared<SoftmaxCrossEntropy>());
  PortionJob job(graph, *data.train,
                 {.workers = settings.workers,
                  .batch = settings.portion,
                  .portions = {.portion = settings.portion, .backups = backups}});
  for (int i = 0; i < settings.workers; ++i) {
    job.start_worker([slow = i == 0 ? settings.slowness : 1] { slowness = slow; });
  }
  std::vector<double> found;
  for (int i = 0; i <= settings.evaluations; ++i) {
    const auto start = Clock::now();
    (void)job.evaluate();
    if (i > 0) {
      found.push_back(seconds_since(start));
    }
  }
  counts = job.books().counts();
  std::ranges::sort(found);
  return found;
}

void run(const Settings& settings) {
  const double work = static_cast<double>(settings.portions * settings.portion) * settings.microseconds * 1e-6;
  const double ideal = work / (settings.workers - 1 + 1 / settings.slowness);
  std::cout << fmt::format("{} workers, one {} times slower, {} portions: ideal {:.3f} s\n", settings.workers,
                           settings.slowness, settings.portions, ideal);
  std::cout << fmt::format("{:<16} {:>9} {:>9} {:>9} {:>22}\n", "", "median", "worst", "of ideal", "computed twice");
  for (const bool backups : {true, false}) {
    PortionTable::Counts counts;
    const std::vector<double> seconds = seconds_of(settings, backups, counts);
    const double median = seconds[seconds.size() / 2];
    std::cout << fmt::format(
        "{:<16} {:>7.3f} s {:>7.3f} s {:>9.2f} {:>20.1f} %\n", backups ? "backup portions" : "without", median,
        seconds.back(), median / ideal,
        100.0 * static_cast<double>(counts.handed_out - counts.done) / static_cast<double>(counts.done));
  }
}

}  // namespace
}  // namespace distbelief

int main(int argc, char** argv) {
  distbelief::Settings settings;
  CLI::App app("evaluations of Sandblaster's objective with one slow worker");
  app.add_option("--workers", settings.workers, "")->check(CLI::Range(2, 64));
  app.add_option("--portions", settings.portions, "of an evaluation")->check(CLI::PositiveNumber);
  app.add_option("--portion", settings.portion, "samples")->check(CLI::PositiveNumber);
  app.add_option("--microseconds", settings.microseconds, "that a sample takes")->check(CLI::PositiveNumber);
  app.add_option("--slowness", settings.slowness, "of one of the workers")->check(CLI::PositiveNumber);
  app.add_option("--evaluations", settings.evaluations, "")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    distbelief::run(settings);
  } catch (const distbelief::Error& error) {
    std::cerr << "bench_portions: " << error.what() << '\n';
    return 2;
  }
  return 0;
}
