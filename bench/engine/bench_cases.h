#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "data/dataset.h"
#include "strategy/strategy.h"

namespace distbelief {

/// What bench/peers.sh and bench/processes.py train; models and batches as in bench/peers/torch_peer.py.
struct Case {
  std::string model;
  std::int64_t batch;
  SampleSpec data;
};

inline const std::map<std::string, Case> kCases = {
    {"mlp", {"mlp", 128, {.input = {1, 28, 28}, .classes = 10}}},
    {"mlp-epoch", {"mlp", 128, {.input = {1, 28, 28}, .classes = 10}}},
    {"lenet", {"lenet", 128, {.input = {1, 28, 28}, .classes = 10}}},
    {"resnet50", {"resnet50", 16, {.input = {3, 224, 224}, .classes = 1000}}},
    {"speech", {"speech", 256, {.input = {440}, .classes = 8192}}},
    {"local-image", {"local-image", 128, {.input = {3, 32, 32}, .classes = 10}}},
};

inline Batch random_batch(const Case& work, std::int64_t rows, std::uint64_t number) {
  const CounterRandom random(1, RandomUse::generate);
  Batch batch;
  const std::int64_t width = work.data.input.elements();
  batch.dense.resize(static_cast<std::size_t>(rows * width));
  for (std::size_t i = 0; i < batch.dense.size(); ++i) {
    batch.dense[i] = random.uniform(number, i) * 2 - 1;
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    batch.ids.push_back(number * 100000 + static_cast<std::uint64_t>(r));
    batch.classes.push_back(static_cast<std::int32_t>(
        random.below(static_cast<std::uint64_t>(work.data.classes), 1000 + number, static_cast<std::uint64_t>(r))));
  }
  return batch;
}

/// Batches that are in memory already, in turn, for ever.
class ResidentBatches : public BatchStream {
 public:
  ResidentBatches(const Case& work, std::int64_t rows) {
    for (std::uint64_t i = 0; i < 4; ++i) {
      batches_.push_back(random_batch(work, rows, i));
    }
  }
  const Batch* next() override { return &batches_[taken_++ % batches_.size()]; }
  void leased_by_others(std::span<const std::uint64_t> /*ids*/) override {}
  void applied(std::span<const std::uint64_t> /*ids*/) override {}
  void dropped(std::span<const std::uint64_t> /*ids*/) override {}

 private:
  std::vector<Batch> batches_;
  std::size_t taken_ = 0;
};

}  // namespace distbelief
