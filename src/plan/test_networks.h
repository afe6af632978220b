#pragma once

#include "graph/graph.h"
#include "graph/layers/conv2d.h"
#include "graph/layers/dense.h"
#include "graph/layers/relu.h"
#include "graph/layers/reshape.h"
#include "graph/losses/softmax_cross_entropy.h"

namespace distbelief {

// For tests only.

/// Layers that cost the same, one after the other.
inline Graph equal_layers(int layers, std::int64_t units) {
  Graph graph("equal");
  NodeId x = graph.add_input({units});
  for (int i = 1; i <= layers; ++i) {
    x = graph.add("dense" + std::to_string(i), std::make_shared<Dense>(DenseOptions{.units = units}), {x});
  }
  graph.finish(std::make_shared<SoftmaxCrossEntropy>());
  return graph;
}

/// Convolutions that regions can be cut of, and a dense layer.
inline Graph small_images() {
  const auto conv = [](std::int64_t filters) {
    return std::make_shared<Conv2d>(
        Conv2dOptions{.filters = filters, .window = {.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}}});
  };
  Graph graph("images");
  NodeId x = graph.add_input({3, 16, 16});
  x = graph.add("conv1", conv(16), {x});
  x = graph.add("relu1", std::make_shared<Relu>(), {x});
  x = graph.add("conv2", conv(16), {x});
  x = graph.add("relu2", std::make_shared<Relu>(), {x});
  x = graph.add("flatten", Reshape::flatten(), {x});
  x = graph.add("dense", std::make_shared<Dense>(DenseOptions{.units = 8}), {x});
  graph.finish(std::make_shared<SoftmaxCrossEntropy>());
  return graph;
}

}  // namespace distbelief
