#pragma once

#include "graph/layer.h"

namespace distbelief {

/// Its inputs, one after the other along a dimension (1, the channels, by default); the other dimensions are equal.
class Concat : public Layer {
 public:
  explicit Concat(int axis = 1) : axis_(axis) {}
  std::string_view type() const override { return "concat"; }
  ValueSpec output(ValueSpecs inputs) const override;
  std::int64_t flops(ValueSpecs /*inputs*/) const override { return 0; }
  std::vector<Cut> cuts(ValueSpecs inputs) const override {
    return axis_ == 1 && inputs[0].shape.rank() == 4 ? std::vector{Cut::region} : std::vector<Cut>{};
  }
  std::unique_ptr<Kernel> compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const override;

 private:
  int axis_;
};

}  // namespace distbelief
