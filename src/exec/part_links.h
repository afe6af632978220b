#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/error.h"
#include "comm/group.h"
#include "exec/compute_watch.h"
#include "graph/exchange.h"
#include "graph/loss.h"

namespace distbelief {

/// A process that holds another part of the network cannot be reached any more. Thrown out of the middle of a forward
/// or backward pass; the parameters are as they were before the step.
class ExchangeLost : public Error {
 public:
  explicit ExchangeLost(const Outcome& outcome)
      : Error("a part of the network is lost: " + outcome.reason, 4), outcome_(outcome) {}
  const Outcome& outcome() const { return outcome_; }

 private:
  Outcome outcome_;
};

/// One process's links to the others that hold parts of the same replica. What is sent to another stage is copied and
/// goes while this process computes on; its bytes move in progress() and whenever anything is waited for. One thread.
class PartLinks : public Exchange {
 public:
  struct Options {
    std::vector<Rank> members = {};  ///< of the replica: stage by stage, those that share one in order
    int tensor = 1;                  ///< that share a stage
    std::uint32_t epoch = 0;         ///< these and the next two are not used by other groups of the members
    Clock::duration patience = std::chrono::minutes(10);  ///< for members that live but do not answer
    ComputeWatch* watch = nullptr;  ///< borrowed; told that nothing is computed while others are waited for
    /// Longer messages go in pieces: no fabric has longer ones than its kMaxMessageBytes. The same for all members.
    std::size_t most_bytes_of_a_piece = Fabric::kMaxMessageBytes / 4;
  };
  /// `fabric` is borrowed.
  PartLinks(Fabric& fabric, const Options& options);
  ~PartLinks() override;
  PartLinks(const PartLinks&) = delete;
  PartLinks& operator=(const PartLinks&) = delete;

  int stages() const { return static_cast<int>(all_.members().size()) / tensor_; }
  int stage() const { return all_.position() / tensor_; }
  int position() const { return stage_.position(); }  ///< among those that share the stage

  void sum(std::span<float> data) override;
  void swap(std::span<const std::span<const float>> out, std::span<const std::span<float>> in) override;
  void send(int value, bool gradient, int stage, std::span<const float> data) override;
  void receive(int value, bool gradient, int stage, std::span<float> data) override;
  void progress() override;

  /// All members get what the last stage has.
  void share(LossSums& sums);
  /// Whether this process is the first of the replica, and what that one has for all.
  bool is_first() const { return all_.position() == 0; }
  void share_from_first(std::span<std::byte> data);
  /// Those that share the stage get what the first of them has.
  void share_in_stage(std::span<float> data);
  /// The sum over all members, and whether something holds for all of them.
  double sum_of_all(double here);
  void sum_of_all(std::span<double> numbers);
  bool all(bool here) { return sum_of_all(here ? 0 : 1) == 0; }

  /// Seconds that this process has waited for others.
  double waiting_seconds() const { return waiting_seconds_; }

 private:
  class Outgoing;
  class Waiting;
  Rank rank_at(int stage) const;
  Tag next_tag(int value, bool gradient, bool sends);
  void send_piece(Rank peer, Tag tag, std::span<const float> data);
  void receive_piece(Rank peer, Tag tag, std::span<float> data);
  Clock::time_point deadline() const { return Clock::now() + patience_; }

  Fabric& fabric_;
  const int tensor_;
  const Clock::duration patience_;
  ComputeWatch* const watch_;
  const std::uint32_t value_epoch_;
  const std::size_t most_floats_of_a_piece_;
  Group all_;
  Group stage_;
  std::vector<std::uint32_t> swapped_out_, swapped_in_;            ///< messages to and from each of the stage so far
  std::map<std::pair<int, bool>, std::uint32_t> sent_, received_;  ///< messages of each value so far
  std::vector<std::unique_ptr<Outgoing>> outgoing_;
  std::size_t open_ = 0;  ///< of them, on their way
  double waiting_seconds_ = 0;
};

}  // namespace distbelief
