#pragma once

#include "graph/layer.h"

namespace distbelief {

struct EmbeddingOptions {
  std::int64_t vocabulary = 0;
  std::int64_t dimension = 0;
};

/// A row of a table for each integer: [batch, n] of indices gives [batch, n, dimension]. A step with an index outside
/// [0, vocabulary) throws InputError that names it.
class Embedding : public Layer {
 public:
  explicit Embedding(EmbeddingOptions options) : options_(options) {}
  std::string_view type() const override { return "embedding"; }
  ValueSpec output(ValueSpecs inputs) const override;
  std::vector<ParameterSpec> parameters(ValueSpecs inputs) const override;
  std::int64_t flops(ValueSpecs /*inputs*/) const override { return 0; }
  std::unique_ptr<Kernel> compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const override;

 private:
  EmbeddingOptions options_;
};

}  // namespace distbelief
