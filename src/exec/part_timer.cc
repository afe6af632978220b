#include "exec/part_timer.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "base/clock.h"
#include "base/parallel.h"
#include "exec/busy_others.h"
#include "exec/program.h"
#include "plan/part_memory.h"
#include "tensor/buffer.h"

namespace distbelief {
namespace {

constexpr int kFewestPartRuns = 3;
constexpr int kMostPartRuns = 40;
constexpr double kSecondsOfPartRuns = 0.3;

/// Others that are always there, and have nothing to say.
class NobodyElse : public Exchange {
 public:
  void sum(std::span<float> /*data*/) override {}
  void swap(std::span<const std::span<const float>> /*out*/, std::span<const std::span<float>> in) override {
    for (const std::span<float> one : in) {
      fill(one);
    }
  }
  void send(int /*value*/, bool /*gradient*/, int /*stage*/, std::span<const float> /*data*/) override {}
  void receive(int /*value*/, bool /*gradient*/, int /*stage*/, std::span<float> data) override { fill(data); }
  void progress() override {}

 private:
  static void fill(std::span<float> data) { std::ranges::fill(data, 0.01F); }
};

/// A part with memory and a batch of its own.
class TimedPart {
 public:
  TimedPart(const NetworkPart& part, std::int64_t rows)
      : program_(part.graph, part.table, rows, Purpose::training),
        arena_(program_.arena_bytes()),
        values_(bytes_of(part.table)),
        gradients_(bytes_of(part.table)) {
    std::int64_t i = 0;
    for (float& value : values_.as<float>()) {
      value = 0.01F * static_cast<float>(i++ % 17 - 8);
    }
    program_.bind(arena_.data(), values_.as<float>().data(), gradients_.as<float>().data());
    const auto count = static_cast<std::size_t>(rows);
    batch_.ids.resize(count);
    std::iota(batch_.ids.begin(), batch_.ids.end(), 0);
    batch_.dense.assign(static_cast<std::size_t>(part.graph.node(0).output.shape.elements()) * count, 0.1F);
    if (part.graph.has_loss() && part.graph.loss().wants_classes()) {
      batch_.classes.assign(count, 0);
    } else if (part.graph.has_loss()) {
      batch_.targets.assign(
          static_cast<std::size_t>(part.graph.node(part.graph.output()).output.shape.elements()) * count, 0);
    }
    step_ = {.training = true, .seed = 1, .sample_ids = batch_.ids, .exchange = &others_};
  }

  LayerTime once() {
    const Clock::time_point began = Clock::now();
    program_.load(batch_, 0);
    program_.forward(step_);
    (void)program_.evaluate_loss();
    LayerTime time = {.forward = seconds_since(began)};
    const Clock::time_point turned = Clock::now();
    program_.backward(step_);
    time.backward = seconds_since(turned);
    return time;
  }

  LayerTime median() {
    (void)once();  // primitives make themselves ready in their first run
    std::vector<double> forward;
    std::vector<double> backward;
    const Clock::time_point began = Clock::now();
    for (int run = 0; run < kFewestPartRuns || (run < kMostPartRuns && seconds_since(began) < kSecondsOfPartRuns);
         ++run) {
      const LayerTime time = once();
      forward.push_back(time.forward);
      backward.push_back(time.backward);
    }
    return {middle(forward), middle(backward)};
  }

 private:
  static std::size_t bytes_of(const ParameterTable& table) {
    return static_cast<std::size_t>(std::max<std::int64_t>(1, table.size())) * sizeof(float);
  }
  static double middle(std::vector<double>& times) {
    const auto half = times.begin() + std::ssize(times) / 2;
    std::ranges::nth_element(times, half);
    return *half;
  }

  Program program_;
  Buffer arena_;
  Buffer values_;
  Buffer gradients_;
  Batch batch_;
  NobodyElse others_;
  StepContext step_;
};

}  // namespace

std::optional<LayerTime> time_part(const NetworkPart& part, std::int64_t rows, const TimedLoad& load) {
  if (part.graph.node(0).output.kind != ValueKind::dense) {
    return std::nullopt;
  }
  const std::int64_t bytes =
      estimated_arena_bytes(part, rows) + 2 * part.table.size() * static_cast<std::int64_t>(sizeof(float));
  if (load.processes * bytes > kMostTimedBytes) {
    return std::nullopt;
  }
  const BusyOthers others(load.processes - 1, [&]() -> BusyOthers::Work {
    set_thread_count(load.threads);
    auto own = std::make_shared<TimedPart>(part, rows);  // shared: a function can be copied
    return [own] { (void)own->once(); };
  });
  set_thread_count(load.threads);
  return TimedPart(part, rows).median();
}

}  // namespace distbelief
