#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/checkpoint.h"
#include "config/run_config.h"
#include "train/plan_knowledge.h"

namespace distbelief {

/// Whether there is anything left to do for the run in this folder under `config`, which is its own with what the user
/// changed. Empty: yes. Otherwise one line that says how it ended and what would make it longer. Reads only: the
/// folder's run.yaml, summary.json and newest sound checkpoint. Throws InputError when the run has gone further than
/// `config` says.
std::string nothing_left_to_do(const std::filesystem::path& folder, const RunConfig& config);

/// What a run goes on from: the newest sound checkpoint in `folder`, or the copy of a newer one; none when there is
/// none yet. `note` hears which cannot be used, and why. Throws InputError when that is so of all.
std::optional<Checkpoint> checkpoint_to_go_on_from(const std::filesystem::path& folder, const RunConfig& config,
                                                   const std::function<void(std::string_view)>& note);

/// Throws InputError when the run in this folder has checkpoints, and none can be used: then no process need be started
/// to find that out. `note` as above, but only then.
void expect_usable_checkpoint(const std::filesystem::path& folder, const RunConfig& config,
                              const std::function<void(std::string_view)>& note);

/// Throws InputError when the data that `config` now names has another number of samples to train on than the run in
/// this folder has, or the model other parameters. Reads only, and that only when `config` names other data or another
/// model than the folder's run.yaml.
void expect_samples_of_run(const std::filesystem::path& folder, const RunConfig& config,
                           const PlanKnowledge& knowledge);

/// The message for that.
std::string other_samples(const std::filesystem::path& folder, const RunConfig& config, std::uint64_t samples,
                          std::uint64_t samples_of_run);

}  // namespace distbelief
