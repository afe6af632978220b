// A network with a layer and a loss of our own, trained by a loop of our own.
#include <fmt/format.h>

#include "base/error.h"
#include "data/loader.h"
#include "data/open.h"
#include "exec/replica.h"
#include "graph/layers/dense.h"
#include "learned_slope.h"
#include "params/parameter_shard.h"
#include "plan/parameter_layout.h"
#include "smooth_cross_entropy.h"

using namespace distbelief;

namespace {

constexpr int kEpochs = 8;

Graph make_network(const SampleSpec& data) {
  Graph graph("own");
  const NodeId input = graph.add_input(data.input);
  const NodeId hidden = graph.add("hidden", std::make_shared<Dense>(DenseOptions{.units = 32}), {input});
  const NodeId bent = graph.add("bent", std::make_shared<LearnedSlope>(), {hidden});
  graph.add("output", std::make_shared<Dense>(DenseOptions{.units = data.classes, .init = DenseOptions::Init::small}),
            {bent});
  graph.finish(std::make_shared<SmoothCrossEntropy>(0.1F));
  return graph;
}

double accuracy_on(Replica& replica, const Dataset& data) {
  const Sampler in_order(data.size(), 0, false);
  Loader loader(data, in_order, {.batch = 100, .end_epoch = 1});
  LossSums sums;
  while (const Batch* batch = loader.next()) {
    sums += replica.evaluate(*batch);
  }
  return static_cast<double>(sums.correct) / static_cast<double>(sums.rows);
}

double train() {
  const DataSplits data = open_data({.source = "synthetic:classes=6,shape=64,samples=3000,noise=1.5,seed=7"});
  const Graph graph = make_network(data.train->spec());
  const ParameterTable table = layout_parameters(graph);
  Replica replica(graph, table, {.threads = 1, .seed = 1});
  table.initialize(1, replica.values());

  // Your own loop: plain descent, with a rate that falls by half each epoch and twice the rate for the slopes.
  const Sampler order(data.train->size(), 1, true);
  Loader loader(*data.train, order, {.batch = 50, .end_epoch = kEpochs});
  const Range slopes = table.at("bent.slope").range;
  double accuracy = 0;
  float rate = 0.2F;
  for (int epoch = 1; epoch <= kEpochs; ++epoch, rate *= 0.5F) {
    LossSums sums;
    while (const Batch* batch = loader.next()) {
      const LossSums step = replica.compute_gradient(*batch);
      for (const std::span<const float> part : replica.gradients()) {
        for (std::int64_t i = 0; i < table.optimized_size(); ++i) {
          const float own_rate = i >= slopes.begin && i < slopes.end ? 2 * rate : rate;
          replica.values()[static_cast<std::size_t>(i)] -=
              own_rate * part[static_cast<std::size_t>(i)] / static_cast<float>(step.rows);
        }
      }
      sums += step;
    }
    accuracy = accuracy_on(replica, *data.test);
    fmt::print("epoch {}  loss {:.4f}  test accuracy {:.1f} %\n", epoch, sums.loss / static_cast<double>(sums.rows),
               100 * accuracy);
  }
  fmt::print("slopes ");
  for (std::int64_t i = slopes.begin; i < slopes.begin + 8; ++i) {
    fmt::print(" {:.3f}", replica.values()[static_cast<std::size_t>(i)]);
  }
  fmt::print(" ...\n");
  return accuracy;
}

}  // namespace

int main() {
  try {
    return train() > 0.9 ? 0 : 1;
  } catch (const Error& error) {
    fmt::print(stderr, "own_layer: {}\n", error.what());
    return error.exit_code();
  }
}
