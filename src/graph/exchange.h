#pragma once

#include <cstdint>
#include <span>

namespace distbelief {

/// What exchange layers need of the processes that hold parts of the same network. They know each other by position
/// among those that share the layers of a stage, and by the numbers of the values that pass between stages. Whoever
/// cannot be reached any more ends the call with ExchangeLost (exec/part_links.h). One thread.
class Exchange {
 public:
  virtual ~Exchange() = default;

  /// The sum over all that share the stage, with the same bits everywhere.
  virtual void sum(std::span<float> data) = 0;
  /// out[i] goes to the i-th of them, and in[i] comes from it; at this one's own position nothing is looked at.
  virtual void swap(std::span<const std::span<const float>> out, std::span<const std::span<float>> in) = 0;

  /// Between stages: a value, or the gradient of one that came, on its way to whoever has the other end. `data` may be
  /// overwritten as soon as send() returns.
  virtual void send(int value, bool gradient, int stage, std::span<const float> data) = 0;
  virtual void receive(int value, bool gradient, int stage, std::span<float> data) = 0;

  /// Moves on what is on its way, without waiting.
  virtual void progress() = 0;
};

}  // namespace distbelief
