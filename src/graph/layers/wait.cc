#include "graph/layers/wait.h"

#include <sys/prctl.h>

#include <thread>

#include "base/clock.h"
#include "base/error.h"

namespace distbelief {
namespace {

class WaitKernel : public Kernel {
 public:
  WaitKernel(const ValueLayout& value, Clock::duration forward)
      : Kernel(value, {.backward_reads_inputs = false, .is_view = true}), forward_(forward) {
    ::prctl(PR_SET_TIMERSLACK, 1'000);  // nanoseconds; the system's own 50 us would count in each wait
  }
  void forward(const StepContext& /*step*/) override { std::this_thread::sleep_for(forward_); }
  void backward(const StepContext& /*step*/) override { std::this_thread::sleep_for(2 * forward_); }

 private:
  const Clock::duration forward_;
};

}  // namespace

Wait::Wait(double microseconds) : microseconds_(microseconds) {
  if (!(microseconds >= 0 && microseconds <= 1e6)) {
    throw InputError(fmt::format("wait needs microseconds from 0 to 1000000, got {}", microseconds));
  }
}

ValueSpec Wait::output(ValueSpecs inputs) const {
  expect_dense_inputs(*this, inputs, 1);
  return inputs[0];
}

std::int64_t Wait::flops(ValueSpecs inputs) const {
  constexpr double kOperationsOfAMicrosecond = 50e3;
  return static_cast<std::int64_t>(kOperationsOfAMicrosecond * microseconds_) * inputs[0].shape[0];
}

LayerPart Wait::part(Cut /*cut*/, ValueSpecs /*inputs*/, const Slice& slice) const {
  return {.layer = std::make_shared<Wait>(microseconds_ * static_cast<double>(slice.size()) /
                                          static_cast<double>(slice.whole))};
}

std::unique_ptr<Kernel> Wait::compile(const Engine& /*engine*/, ValueLayouts inputs, Purpose /*purpose*/) const {
  const auto rows = static_cast<double>(inputs[0].spec.shape[0]);
  const std::chrono::duration<double, std::micro> forward(microseconds_ * rows);
  return std::make_unique<WaitKernel>(inputs[0], std::chrono::duration_cast<Clock::duration>(forward));
}

}  // namespace distbelief
