#pragma once

#include "graph/layer.h"

namespace distbelief {

/// Where a value leaves a stage of the network: it goes to another stage, and its gradient comes back from there.
class SendValue : public Layer {
 public:
  struct Options {
    int value = 0;  ///< its number among all that pass between stages
    int stage = 0;  ///< that reads it
  };
  explicit SendValue(Options options) : options_(options) {}
  std::string_view type() const override { return "send"; }
  ValueSpec output(ValueSpecs inputs) const override;
  std::int64_t flops(ValueSpecs /*inputs*/) const override { return 0; }
  std::unique_ptr<Kernel> compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const override;
  const Options& options() const { return options_; }

 private:
  Options options_;
};

/// Where it comes in. The graph's input stands before it, of which it takes nothing but the number of rows.
class ReceiveValue : public Layer {
 public:
  struct Options {
    int value = 0;
    int stage = 0;              ///< that makes it
    Shape sample = {};          ///< without batch
    bool wants_gradient = true; ///< something is trained there
  };
  explicit ReceiveValue(Options options) : options_(std::move(options)) {}
  std::string_view type() const override { return "receive"; }
  ValueSpec output(ValueSpecs inputs) const override;
  std::int64_t flops(ValueSpecs /*inputs*/) const override { return 0; }
  std::unique_ptr<Kernel> compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const override;
  const Options& options() const { return options_; }

 private:
  Options options_;
};

}  // namespace distbelief
