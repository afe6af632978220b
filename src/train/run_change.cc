#include "train/run_change.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "train/run_progress.h"
#include "train/trainer_run.h"

namespace distbelief {
namespace {

/// "adam with adam.m with adam.v".
std::string rule_text(const RunConfig& config) {
  const std::unique_ptr<UpdateRule> rule = make_rule(rule_options(config));
  std::string text(rule->name());
  for (int i = 0; i < rule->slots(); ++i) {
    text += fmt::format(" with {}", rule->slot_name(i));
  }
  return text;
}

bool have_same_cut(const RunConfig& before, const RunConfig& now) {
  const auto least_one = [](std::int64_t parts) { return std::max<std::int64_t>(1, parts); };
  return least_one(before.stages) == least_one(now.stages) && least_one(before.tensor) == least_one(now.tensor) &&
         before.stage_at == now.stage_at && before.shares == now.shares && before.cuts == now.cuts;
}

/// Whether servers hold the same blocks, and leases the same units.
bool have_same_servers(const RunConfig& before, const RunConfig& now) {
  if (!is_served(before) || !is_served(now)) {
    return false;
  }
  const bool same_places = before.servers == now.servers && before.shelves == now.shelves &&
                           (now.servers > 0 || before.workers == now.workers);
  const bool same_units = is_synchronous(before) == is_synchronous(now) && unit_samples(before) == unit_samples(now) &&
                          (!is_synchronous(now) || (before.batch == now.batch && before.workers == now.workers &&
                                                    before.backup_workers == now.backup_workers));
  return same_places && same_units && have_same_cut(before, now);
}

std::string value_of(const RunConfig& config, std::string_view key) {
  return std::ranges::find(run_options(), key, &RunOption::key)->get(config);
}

bool is_of_servers(std::string_view key) { return key == "servers" || key == "n-push"; }

bool is_of_cut(std::string_view key) { return key == "stages" || key == "tensor"; }

/// As people say it: a network that is not cut is in one stage, of one part.
std::string shown_value(const RunConfig& config, std::string_view key) {
  const std::string value = value_of(config, key);
  return is_of_cut(key) && value == "0" ? "1" : value;
}

/// Whether such a run has that at all, or only a value that means nothing.
bool has(const RunConfig& config, std::string_view key) {
  return is_of_servers(key) ? is_served(config) : !is_of_cut(key) || shown_value(config, key) != "1";
}

/// These belong to the run: something in its checkpoints would mean another thing.
struct FixedOption {
  std::string_view key;
  std::string_view why;
};
constexpr std::array kFixed = {
    FixedOption{"seed", "it decides which samples are done and which are set aside"},
    FixedOption{"validation", "samples that were trained on would be set aside, or the other way round"},
};
/// And these of a Sandblaster run: of another objective its history knows nothing.
constexpr std::array kFixedForSandblaster = {
    FixedOption{"history", "servers keep as many pairs"},
    FixedOption{"data", "the history of L-BFGS is of its objective"},
    FixedOption{"weight-decay", "the history of L-BFGS is of its objective"},
    FixedOption{"freeze", "the history of L-BFGS is of its objective"},
};

}  // namespace

RuleOptions rule_options(const RunConfig& config) {
  RuleOptions options;
  options.name = config.optimizer;
  if (config.momentum >= 0) {
    options.momentum = static_cast<float>(config.momentum);
  }
  if (config.epsilon >= 0) {
    options.epsilon = static_cast<float>(config.epsilon);
  }
  options.nesterov = config.nesterov;
  options.beta1 = static_cast<float>(config.beta1);
  options.beta2 = static_cast<float>(config.beta2);
  options.rho = static_cast<float>(config.rho);
  return options;
}

RunChange change_of(const RunConfig& before, const RunConfig& now) {
  const bool same_rule = rule_text(before) == rule_text(now);
  return {.same_rule = same_rule,
          .same_strategy = same_rule && before.algorithm == now.algorithm && is_served(before) == is_served(now) &&
                           before.outer_optimizer == now.outer_optimizer,
          .same_servers = same_rule && have_same_servers(before, now)};
}

std::string change_text(const RunConfig& before, const RunConfig& now) {
  std::string text;
  bool said_before = false;
  for (const std::string_view key :
       {"algorithm", "workers", "servers", "stages", "tensor", "batch", "n-push", "optimizer"}) {
    const std::string was = shown_value(before, key);
    const std::string is = shown_value(now, key);
    if (was == is || (is_of_servers(key) && !is_served(now))) {
      continue;
    }
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key, is);
    if (has(before, key)) {
      text += fmt::format(" ({}{})", was, std::exchange(said_before, true) ? "" : " before");
    }
  }
  return text;
}

void expect_change_is_possible(const std::filesystem::path& folder, const RunConfig& before, const RunConfig& now) {
  const auto expect = [&](const FixedOption& fixed) {
    const std::string was = value_of(before, fixed.key);
    const std::string is = value_of(now, fixed.key);
    if (was != is) {
      throw InputError(fmt::format("--resume {}: its checkpoints are of --{} {}, not {}: {}", folder.string(),
                                   fixed.key, was, is, fixed.why));
    }
  };
  std::ranges::for_each(kFixed, expect);
  if (is_sandblaster(before) != is_sandblaster(now)) {
    throw InputError(
        fmt::format("--resume {0}: its checkpoints are of --algorithm {1}, not {2}: an iteration of L-BFGS is no "
                    "epoch; begin anew with its weights: --algorithm {2} --init {0}",
                    folder.string(), before.algorithm, now.algorithm));
  }
  if (is_sandblaster(now)) {
    std::ranges::for_each(kFixedForSandblaster, expect);
  }
}

RunConfig config_of_checkpoint(const Checkpoint& checkpoint, const std::filesystem::path& folder) {
  if (!checkpoint.has_blob(kConfigBlob)) {
    return config_of_run(folder);
  }
  RunConfig config;
  apply_config_text(config, checkpoint.blob(kConfigBlob), (checkpoint.path() / kConfigBlob).string());
  return config;
}

std::optional<std::uint64_t> samples_of(const Checkpoint& checkpoint) {
  const std::string where = checkpoint.path().string();
  if (checkpoint.has_blob(kLedgerBlob)) {
    return SampleLedger::samples_in(checkpoint.blob(kLedgerBlob), where);
  }
  if (checkpoint.has_blob(kBooksBlob) && !checkpoint.blob(kBooksBlob).empty()) {  // Sandblaster has none
    return static_cast<std::uint64_t>(ServedBooks::head_of(checkpoint.blob(kBooksBlob), where).samples);
  }
  return std::nullopt;
}

std::int64_t epochs_begun(const Checkpoint& checkpoint) {
  const CheckpointManifest& manifest = checkpoint.manifest();
  const std::string where = checkpoint.path().string();
  const std::int64_t begun = manifest.epoch + (manifest.position > 0 ? 1 : 0);
  if (checkpoint.has_blob(kBooksBlob) && !checkpoint.blob(kBooksBlob).empty()) {
    std::int64_t most = std::max(begun, ServedBooks::head_of(checkpoint.blob(kBooksBlob), where).epochs_begun);
    for (std::size_t server = 0; checkpoint.has_blob(server_blob(server)); ++server) {  // which are of later moments
      for (const SavedLease& lease : saved_leases(checkpoint.blob(server_blob(server)), where).leases) {
        most = std::max(most, lease.samples.epoch + 1);
      }
    }
    return most;
  }
  if (checkpoint.has_blob(kLaterBlob)) {
    const std::vector<EpochProgress> later = epochs_from(checkpoint.blob(kLaterBlob), where);
    return later.empty() ? begun : std::max(begun, static_cast<std::int64_t>(later.back().number) + 1);
  }
  return begun;
}

}  // namespace distbelief
