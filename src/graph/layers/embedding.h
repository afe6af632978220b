#pragma once

#include "graph/layer.h"

namespace distbelief {

struct EmbeddingOptions {
  std::int64_t vocabulary = 0;
  std::int64_t dimension = 0;
  Slice rows = {};  ///< unless empty: the others are zeros, and not in the table
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
  std::vector<Cut> cuts(ValueSpecs /*inputs*/) const override { return {Cut::inputs}; }
  std::int64_t cut_places(Cut /*cut*/, ValueSpecs /*inputs*/) const override { return options_.vocabulary; }
  LayerPart part(Cut cut, ValueSpecs inputs, const Slice& slice) const override;
  std::unique_ptr<Kernel> compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const override;

 private:
  EmbeddingOptions options_;
};

}  // namespace distbelief
