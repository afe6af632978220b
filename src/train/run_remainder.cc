#include "train/run_remainder.h"

#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "train/trainer_run.h"

namespace distbelief {
namespace {

struct RunEnd {
  std::string status;  ///< "finished" or "stopped early"
  std::int64_t epochs = 0;
};

/// How a run ended whose newest checkpoint is of `step`. None when it did not end by itself there, or when what it came
/// to cannot be read: whoever goes on with it will write that anew.
std::optional<RunEnd> end_of(const RunFolder& folder, std::int64_t step) {
  if (!std::filesystem::exists(folder.summary()) || !std::filesystem::exists(folder.model())) {
    return std::nullopt;
  }
  try {
    const auto root = parse_json(read_file(folder.summary()));
    const RunEnd end = {.status = root.at("status"), .epochs = root.at("epochs")};
    const bool complete = end.status == "finished" || end.status == "stopped early";
    return complete && root.at("steps") == step ? std::optional(end) : std::nullopt;
  } catch (const JsonError&) {
    return std::nullopt;
  }
}

/// Of a Sandblaster run that found nothing more to gain: what it would have to be told for another end.
bool seeks_the_same(const RunConfig& before, const RunConfig& config) {
  return before.iterations == config.iterations && before.tolerance == config.tolerance &&
         before.subset == config.subset && before.subset_growth == config.subset_growth;
}

}  // namespace

std::string nothing_left_to_do(const std::filesystem::path& path, const RunConfig& config) {
  const RunFolder folder = RunFolder::open(path);
  const LatestCheckpoint latest = latest_checkpoint(folder.checkpoints());
  if (!latest.checkpoint) {
    return "";
  }
  const CheckpointManifest& manifest = latest.checkpoint->manifest();
  expect_change_is_possible(path, config_of_checkpoint(*latest.checkpoint, path), config);
  TrainingState state;
  std::map<std::string, std::vector<std::uint64_t>> numbers;
  parse_state(manifest.extra, latest.checkpoint->path().string(), state, numbers);
  const bool sandblaster = is_sandblaster(config);
  const std::string round = sandblaster ? "iteration" : "epoch";
  const std::int64_t wanted = sandblaster ? config.iterations : config.epochs;
  const std::optional<RunEnd> end = end_of(folder, manifest.step);
  const std::int64_t done = end ? end->epochs : manifest.epoch;
  const std::int64_t begun = end || sandblaster ? done : std::max(done, epochs_begun(*latest.checkpoint));
  if (wanted < begun) {
    throw InputError(fmt::format("--resume {}: {} {} {}: expected --{}s {} or more", path.string(), round, begun,
                                 begun > done ? "has begun" : "is done", round, begun));
  }
  if (!end) {
    return "";
  }
  const bool early = end->status == "stopped early";
  const std::int64_t since_best = state.epochs_since_best + done - manifest.epoch;  // it may be of just before the end
  const std::string after = fmt::format("after {} {}{}", done, round, done == 1 ? "" : "s");
  if (early && config.early_stop > 0 && since_best >= config.early_stop) {
    return fmt::format("the run in {} stopped early {}; more need a larger --early-stop, or 0 for none", path.string(),
                       after);
  }
  if (wanted == done || (!early && sandblaster && seeks_the_same(config_of_run(path), config))) {
    return fmt::format("the run in {} is finished {}; more need --{}s", path.string(), after, round);
  }
  return "";
}

std::optional<Checkpoint> checkpoint_to_go_on_from(const std::filesystem::path& folder, const RunConfig& config,
                                                   const std::function<void(std::string_view)>& note) {
  LatestCheckpoint latest = latest_checkpoint(folder);
  for (const LatestCheckpoint::Skipped& skipped : latest.skipped) {
    note(fmt::format("{} cannot be used: {}", skipped.path.string(), skipped.reason));
  }
  if ((!latest.checkpoint || !latest.skipped.empty()) && !config.checkpoint_copy.empty()) {
    LatestCheckpoint copy = latest_checkpoint(std::filesystem::path(config.checkpoint_copy) / "checkpoints");
    const auto step_of = [](const LatestCheckpoint& one) {
      return one.checkpoint ? one.checkpoint->manifest().step : -1;
    };
    if (step_of(copy) > step_of(latest)) {
      note(fmt::format("instead there is a copy: {}", copy.checkpoint->path().string()));
      latest.checkpoint = std::move(copy.checkpoint);
    }
  }
  if (!latest.checkpoint && !latest.skipped.empty()) {
    throw InputError(fmt::format("{}: none of its checkpoints can be used; the newest: {}", folder.string(),
                                 latest.skipped.front().reason));
  }
  return std::move(latest.checkpoint);
}

void expect_usable_checkpoint(const std::filesystem::path& folder, const RunConfig& config,
                              const std::function<void(std::string_view)>& note) {
  std::vector<std::string> notes;
  try {
    (void)checkpoint_to_go_on_from(RunFolder::open(folder).checkpoints(), config,
                                   [&](std::string_view line) { notes.emplace_back(line); });
  } catch (const InputError&) {
    for (const std::string& line : notes) {
      note(line);
    }
    throw;
  }
}

std::string other_samples(const std::filesystem::path& folder, const RunConfig& config, std::uint64_t samples,
                          std::uint64_t samples_of_run) {
  return fmt::format("--resume {}: the data '{}' has {} samples to train on, where the run has {}", folder.string(),
                     config.data, samples, samples_of_run);
}

void expect_samples_of_run(const std::filesystem::path& path, const RunConfig& config, const PlanKnowledge& knowledge) {
  const RunConfig before = config_of_run(path);
  if (before.data == config.data && before.data_dir == config.data_dir && before.validation == config.validation &&
      before.model == config.model && before.model_options == config.model_options) {
    return;
  }
  const LatestCheckpoint latest = latest_checkpoint(RunFolder::open(path).checkpoints());
  if (!latest.checkpoint) {
    return;
  }
  const std::optional<std::uint64_t> samples_of_run = samples_of(*latest.checkpoint);
  RunConfig alone = config;
  alone.init.clear();  // it has begun, and does not need that any more
  const CheckedRun checked = check_run(alone, knowledge);
  if (samples_of_run && checked.samples != *samples_of_run) {
    throw InputError(other_samples(path, config, checked.samples, *samples_of_run));
  }
  if (checked.model_digest != latest.checkpoint->manifest().model_digest) {
    throw InputError(fmt::format("--resume {}: its checkpoints are of a model with other parameters than {}",
                                 path.string(), checked.model));
  }
}

}  // namespace distbelief
