#pragma once

#include <algorithm>
#include <exception>
#include <functional>
#include <utility>

#include "exec/received_values.h"
#include "exec/replica.h"
#include "tensor/vector_ops.h"

namespace distbelief {

/// One thread's (or, in kernels mode, everybody's) programs, with the memory they share: only one of them runs at a
/// time.
struct Replica::Lane {
  int number = 0;
  /// Programs that share memory.
  struct Slot {
    std::vector<std::unique_ptr<Program>> programs;
    Buffer arena;
    std::vector<float> observed;           ///< by the forward pass whose backward is still to come
    std::unique_ptr<ReceivedValues> kept;  ///< likewise, where the rest is computed again
  };
  std::vector<Slot> slots = std::vector<Slot>(1);
  Buffer gradient;
  Buffer earlier;  ///< the sum of the gradients of a batch's micro-batches but for the last; empty when there is one
  LossSums sums;
  std::string nonfinite;
  std::exception_ptr error;
};

/// Adds up the gradients of a lane's micro-batches. It listens to the last one's backward, adds what the others gave to
/// each part that is final, and only then tells who listens to the whole.
class Replica::Accumulator : public GradientListener {
 public:
  Accumulator(Lane& lane, std::int64_t optimized, GradientListener* listener)
      : lane_(lane), floats_(std::ssize(lane.gradient.as<float>())), from_(optimized), listener_(listener) {}

  /// One that others follow is done.
  void keep(bool first) {
    if (lane_.earlier.bytes() == 0) {
      lane_.earlier = Buffer(lane_.gradient.bytes());
    }
    if (first) {
      std::ranges::copy(lane_.gradient.as<float>(), lane_.earlier.as<float>().begin());
    } else {
      add(gradient(), earlier(), earlier(), floats_);
    }
  }
  void final_from(int lane, std::int64_t offset) override {
    add_earlier(offset, from_);
    from_ = offset;
    if (listener_ != nullptr) {
      listener_->final_from(lane, offset);
    }
  }
  /// The last is done.
  void finish(std::int64_t parts, std::int64_t optimized) {
    add_earlier(0, from_);
    add_earlier(optimized, floats_);
    for (float& observed : lane_.gradient.as<float>().subspan(static_cast<std::size_t>(optimized))) {
      observed /= static_cast<float>(parts);
    }
  }

 private:
  float* gradient() { return lane_.gradient.as<float>().data(); }
  float* earlier() { return lane_.earlier.as<float>().data(); }
  void add_earlier(std::int64_t begin, std::int64_t end) {
    add(gradient() + begin, earlier() + begin, gradient() + begin, end - begin);
  }

  Lane& lane_;
  const std::int64_t floats_;
  std::int64_t from_;  ///< from here on all optimized parameters have been added
  GradientListener* const listener_;
};

/// Adds up what each of those that share a stage has of some gradients, as soon as this process's is final, and then
/// tells who listens. All of them do it in the same order, that of their layers.
class Replica::PartialSums : public GradientListener {
 public:
  /// All borrowed; `listener` may be null. `partial`: ranges of the gradient.
  PartialSums(PartLinks& links, std::span<float> gradient, const std::vector<Range>& partial,
              GradientListener* listener)
      : links_(links), gradient_(gradient), partial_(partial), listener_(listener) {
    std::ranges::sort(partial_, std::greater<>(), &Range::begin);
  }
  void final_from(int lane, std::int64_t offset) override {
    for (; next_ < partial_.size() && partial_[next_].begin >= offset; ++next_) {
      const Range& range = partial_[next_];
      links_.sum(gradient_.subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.size())));
    }
    if (listener_ != nullptr) {
      listener_->final_from(lane, offset);
    }
  }

 private:
  PartLinks& links_;
  const std::span<float> gradient_;
  std::vector<Range> partial_;  ///< from the last of the space to the first
  GradientListener* const listener_;
  std::size_t next_ = 0;  ///< those before it are added up
};

}  // namespace distbelief
