#pragma once

#include <map>
#include <vector>

#include "base/check.h"
#include "graph/exchange.h"

namespace distbelief {

/// What a stage got from others for one micro-batch, kept so that its forward pass can be done again: then values come
/// from here, and nothing is sent a second time. One thread.
class ReceivedValues : public Exchange {
 public:
  /// The first time; `exchange` is borrowed.
  void begin(Exchange& exchange) {
    exchange_ = &exchange;
    again_ = false;
    values_.clear();
  }
  void begin_again() { again_ = true; }

  void sum(std::span<float> data) override { exchange_->sum(data); }
  void swap(std::span<const std::span<const float>> out, std::span<const std::span<float>> in) override {
    exchange_->swap(out, in);
  }
  void send(int value, bool gradient, int stage, std::span<const float> data) override {
    if (!again_) {
      exchange_->send(value, gradient, stage, data);
    }
  }
  void receive(int value, bool gradient, int stage, std::span<float> data) override {
    if (again_) {
      const std::vector<float>& kept = values_.at(value);
      check(kept.size() == data.size(), "a value has the same size again");
      std::ranges::copy(kept, data.begin());
      return;
    }
    exchange_->receive(value, gradient, stage, data);
    values_[value].assign(data.begin(), data.end());
  }
  void progress() override { exchange_->progress(); }

 private:
  Exchange* exchange_ = nullptr;
  bool again_ = false;
  std::map<int, std::vector<float>> values_;
};

}  // namespace distbelief
