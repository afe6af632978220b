#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace distbelief {

/// Lets other threads see whether a replica computes right now, and how long it has done so altogether. Written by one
/// thread.
class ComputeWatch {
 public:
  bool computing() const { return computing_.load(std::memory_order_relaxed); }
  double seconds() const { return static_cast<double>(nanoseconds_.load(std::memory_order_relaxed)) * 1e-9; }

  /// As long as it lives something is computed. A null watch is none.
  class Span {
   public:
    explicit Span(ComputeWatch* watch) : watch_(watch) {
      if (watch_ != nullptr) {
        watch_->begin();
      }
    }
    ~Span() {
      if (watch_ != nullptr) {
        watch_->end();
      }
    }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    ComputeWatch* watch_;
  };

  /// As long as it lives nothing is computed, inside of a Span.
  class Pause {
   public:
    explicit Pause(ComputeWatch* watch) : watch_(watch != nullptr && watch->computing() ? watch : nullptr) {
      if (watch_ != nullptr) {
        watch_->end();
      }
    }
    ~Pause() {
      if (watch_ != nullptr) {
        watch_->begin();
      }
    }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    ComputeWatch* watch_;
  };

 private:
  void begin() {
    computing_.store(true, std::memory_order_relaxed);
    began_ = Clock::now();
  }
  void end() {
    nanoseconds_.fetch_add((Clock::now() - began_).count(), std::memory_order_relaxed);
    computing_.store(false, std::memory_order_relaxed);
  }

  static_assert(Clock::period::num == 1 && Clock::period::den == 1'000'000'000);
  std::atomic<bool> computing_ = false;
  std::atomic<std::int64_t> nanoseconds_ = 0;
  Clock::time_point began_ = {};
};

}  // namespace distbelief
