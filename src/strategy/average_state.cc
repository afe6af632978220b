#include "strategy/average_state.h"

namespace distbelief {
namespace {

class AveragingVisitor : public StateVisitor {
 public:
  AveragingVisitor(Group& group, Clock::time_point deadline) : group_(group), deadline_(deadline) {}
  void floats(std::string_view /*name*/, std::span<float> values) override {
    if (outcome_.ok()) {
      outcome_ = group_.all_reduce(values, deadline_);
    }
    const float scale = 1.0F / static_cast<float>(group_.size());
    for (float& value : values) {
      value *= scale;
    }
  }
  void number(std::string_view /*name*/, std::uint64_t& /*value*/) override {}
  void numbers(std::string_view /*name*/, std::vector<std::uint64_t>& /*values*/) override {}
  const Outcome& outcome() const { return outcome_; }

 private:
  Group& group_;
  const Clock::time_point deadline_;
  Outcome outcome_;
};

}  // namespace

Outcome average_state(Group& group, std::span<float> values, ParameterShard& shard, Clock::time_point deadline) {
  AveragingVisitor mean(group, deadline);
  mean.floats("values", values);
  shard.visit_state(mean);
  return mean.outcome();
}

}  // namespace distbelief
