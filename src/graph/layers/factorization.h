#pragma once

#include "graph/layer.h"

namespace distbelief {

/// A factorization machine of degree 2 (Rendle, ICDM 2010): one score
///   w₀ + Σᵢ wᵢxᵢ + ½ Σ_f ((Σᵢ v_if xᵢ)² − Σᵢ v_if² xᵢ²)
/// for each row, which is every pair of columns weighted by the product of their factors. Rows are sparse or dense.
class FactorizationMachine : public Layer {
 public:
  explicit FactorizationMachine(std::int64_t factors) : factors_(factors) {}
  std::string_view type() const override { return "factorization"; }
  ValueSpec output(ValueSpecs inputs) const override;
  std::vector<ParameterSpec> parameters(ValueSpecs inputs) const override;
  std::int64_t flops(ValueSpecs inputs) const override;
  std::unique_ptr<Kernel> compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const override;

 private:
  std::int64_t factors_;
};

}  // namespace distbelief
