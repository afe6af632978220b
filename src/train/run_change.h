#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/checkpoint.h"
#include "config/run_config.h"
#include "params/update_rule.h"

namespace distbelief {

/// A run may go on as another one: with other workers, servers, algorithm, cut of the network, batch or rule. What it
/// takes along follows from what has changed since its checkpoint was written.
struct RunChange {
  bool same_rule = true;      ///< the optimizer's state stays
  bool same_strategy = true;  ///< all that the strategy keeps stays, as it is
  bool same_servers = true;   ///< so do the states of servers; leases go on under their numbers
};
RunChange change_of(const RunConfig& before, const RunConfig& now);

/// What changed, for people: "algorithm downpour (allreduce before), workers 4 (2)"; empty: nothing of importance.
std::string change_text(const RunConfig& before, const RunConfig& now);

/// Throws InputError, in one line that says why, when a run cannot go on so. `folder` is for the message.
void expect_change_is_possible(const std::filesystem::path& folder, const RunConfig& before, const RunConfig& now);

/// The configuration that a checkpoint was written with, which is in it; where it is not, that of the run in `folder`.
RunConfig config_of_checkpoint(const Checkpoint& checkpoint, const std::filesystem::path& folder);

/// Samples of an epoch; none where the checkpoint does not say.
std::optional<std::uint64_t> samples_of(const Checkpoint& checkpoint);

/// Epochs of which some sample is done.
std::int64_t epochs_begun(const Checkpoint& checkpoint);

/// The constants of the update rule.
RuleOptions rule_options(const RunConfig& config);

}  // namespace distbelief
