#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "params/parameter_shard.h"
#include "params/state_visitor.h"
#include "train/part_runs.h"

namespace distbelief {

/// The parameters of a whole network and what its update rule keeps for each: all that one algorithm can take over from
/// another, whoever held which part of it. Arrays are as long as the flat space.
struct WholeState {
  using Vectors = std::map<std::string, std::vector<float>, std::less<>>;

  std::vector<float> values = {};
  std::map<std::string, std::vector<float>, std::less<>> slots = {};  ///< by the rule's names
  std::uint64_t updates = 0;                                          ///< that the rule has made
  /// What servers keep of L-BFGS, by the names that RangeVectors shows; none: they have no rule for it.
  std::optional<Vectors> vectors = {};

  /// Forgets what only the rule knows.
  void begin_rule_anew();
};

/// Of the states of servers, part by part, each in the order of its servers. Each block is of a moment of its own, so
/// that blocks have seen a few more or fewer pushes than others. What a block has gathered for an update is made one,
/// as `options` says of the update after so many pushes. With `keeps_vectors` they are of a Sandblaster run. Throws
/// FileError, naming `source`.
WholeState whole_state_of(const std::vector<std::string>& servers, const std::string& source, const PartRuns& parts,
                          const UpdateRule& rule, const std::function<UpdateOptions(std::uint64_t pushes)>& options,
                          bool keeps_vectors = false);

/// Of a checkpoint that has all of it by name; `numbers` are those of its state. Throws FileError.
WholeState whole_state_of(const Checkpoint& checkpoint,
                          const std::map<std::string, std::vector<std::uint64_t>>& numbers, const ParameterTable& table,
                          const UpdateRule& rule);

/// What a part of the network has of it. Vectors of parameters that several parts have a copy of are with the first,
/// and 0 elsewhere, so that dot products count them once.
WholeState part_of_state(const WholeState& whole, const PartRuns& parts, std::size_t part);

/// Fills in what a shard, or a strategy whose own it is, shows of its rule's state, from the place `begin` of the flat
/// space on; what the state has not stays as it is.
class StateFiller : public StateVisitor {
 public:
  explicit StateFiller(const WholeState& state, std::int64_t begin = 0) : state_(state), begin_(begin) {}
  void floats(std::string_view name, std::span<float> values) override;
  void number(std::string_view name, std::uint64_t& value) override {
    value = name == "updates" ? state_.updates : value;
  }
  void numbers(std::string_view name, std::vector<std::uint64_t>& values) override;

 private:
  const WholeState& state_;
  const std::int64_t begin_;
};

}  // namespace distbelief
