#include "graph/exchanges/stage_exchange.h"

namespace distbelief {
namespace {

class SendKernel : public Kernel {
 public:
  SendKernel(const ValueLayout& value, const SendValue::Options& options)
      : Kernel(value, {.backward_reads_inputs = false, .views_input = true, .brings_gradient = true}),
        options_(options) {}

  void forward(const StepContext& step) override {
    step.exchange->send(options_.value, false, options_.stage, {static_cast<const float*>(memory_.inputs[0]), floats()});
  }
  void backward(const StepContext& step) override {
    step.exchange->receive(options_.value, true, options_.stage, {memory_.input_gradients[0], floats()});
  }

 private:
  std::size_t floats() const { return static_cast<std::size_t>(output_.spec.shape.elements()); }
  const SendValue::Options options_;
};

class ReceiveKernel : public Kernel {
 public:
  ReceiveKernel(const Shape& shape, const ReceiveValue::Options& options)
      : Kernel(plain_value(shape), {.backward_reads_inputs = false, .wants_gradient = options.wants_gradient}),
        value_(options.value),
        stage_(options.stage) {}

  void forward(const StepContext& step) override {
    step.exchange->receive(value_, false, stage_, {memory_.output, floats()});
  }
  void backward(const StepContext& step) override {
    step.exchange->send(value_, true, stage_, {memory_.output_gradient, floats()});
  }

 private:
  std::size_t floats() const { return static_cast<std::size_t>(output_.spec.shape.elements()); }
  const int value_;
  const int stage_;
};

}  // namespace

ValueSpec SendValue::output(ValueSpecs inputs) const { return inputs[0]; }

std::unique_ptr<Kernel> SendValue::compile(const Engine& /*engine*/, ValueLayouts inputs, Purpose /*purpose*/) const {
  return std::make_unique<SendKernel>(inputs[0], options_);
}

ValueSpec ReceiveValue::output(ValueSpecs inputs) const {
  std::vector<std::int64_t> dims = {inputs[0].shape[0]};
  dims.insert(dims.end(), options_.sample.dims().begin(), options_.sample.dims().end());
  return {Shape(std::move(dims)), ValueKind::dense};
}

std::unique_ptr<Kernel> ReceiveValue::compile(const Engine& /*engine*/, ValueLayouts inputs,
                                              Purpose /*purpose*/) const {
  const ValueSpec& input = inputs[0].spec;
  return std::make_unique<ReceiveKernel>(output(std::span(&input, 1)).shape, options_);
}

}  // namespace distbelief
