// Which options are for which algorithms.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/error.h"
#include "config/run_config.h"

namespace distbelief {
namespace {

bool is_asynchronous_served(const RunConfig& config) {
  return is_served(config) && !is_synchronous(config) && !is_sandblaster(config);
}

/// An option that only some algorithms make use of.
struct OptionUse {
  std::string_view key;
  bool (*used)(const RunConfig& config);
  std::string_view by;  ///< for people
};

constexpr auto kAveraging = [](const RunConfig& config) { return config.algorithm == "averaging"; };
constexpr auto kDownpour = [](const RunConfig& config) { return config.algorithm == "downpour"; };
constexpr auto kAsynchronous = [](const RunConfig& config) { return is_asynchronous_served(config); };
constexpr auto kSandblaster = [](const RunConfig& config) { return is_sandblaster(config); };
constexpr auto kNotSandblaster = [](const RunConfig& config) { return !is_sandblaster(config); };

constexpr std::string_view kServedNames = "async, downpour or softsync";
constexpr std::string_view kOthers = "others, as L-BFGS has rates and rules of its own";

constexpr std::array kUses = {
    OptionUse{"average-every", kAveraging, "averaging"},
    OptionUse{"outer-optimizer", kAveraging, "averaging"},
    OptionUse{"outer-lr", kAveraging, "averaging"},
    OptionUse{"outer-momentum", kAveraging, "averaging"},
    OptionUse{"servers", [](const RunConfig& config) { return is_served(config); },
              "async, downpour, softsync, sandblaster, or sync with --backup-workers"},
    OptionUse{"replication", [](const RunConfig& config) { return is_served(config); },
              "async, downpour, softsync, sandblaster, or sync with --backup-workers"},
    OptionUse{"shelves", [](const RunConfig& config) { return is_served(config); },
              "async, downpour, softsync, or sync with --backup-workers"},
    OptionUse{"n-push", [](const RunConfig& config) { return kDownpour(config) || has_hogwild_workers(config); },
              "downpour, or --thread-mode hogwild"},
    OptionUse{"n-fetch", kDownpour, "downpour"},
    OptionUse{"prefetch", [](const RunConfig& config) { return is_served(config) && !is_sandblaster(config); },
              kServedNames},
    OptionUse{"adaptive", kDownpour, "downpour"},
    OptionUse{"n", [](const RunConfig& config) { return config.algorithm == "softsync"; }, "softsync"},
    OptionUse{"staleness-lr", kAsynchronous, kServedNames},
    OptionUse{"warm-start", kAsynchronous, kServedNames},
    OptionUse{"max-staleness", kAsynchronous, kServedNames},
    OptionUse{"divergence-guard", [](const RunConfig& config) { return is_served(config); }, kServedNames},
    OptionUse{"backup-workers", [](const RunConfig& config) { return config.algorithm == "sync"; }, "sync"},
    OptionUse{"iterations", kSandblaster, "sandblaster; others count --epochs"},
    OptionUse{"history", kSandblaster, "sandblaster"},
    OptionUse{"portion", kSandblaster, "sandblaster"},
    OptionUse{"portions-per-push", kSandblaster, "sandblaster"},
    OptionUse{"backup-portions", kSandblaster, "sandblaster"},
    OptionUse{"subset", kSandblaster, "sandblaster"},
    OptionUse{"subset-growth", kSandblaster, "sandblaster"},
    OptionUse{"tolerance", kSandblaster, "sandblaster"},
    OptionUse{"elastic-batch", [](const RunConfig& config) { return is_synchronous(config) && !is_served(config); },
              "allreduce or sync without --backup-workers"},
    OptionUse{
        "balance",
        [](const RunConfig& config) { return is_synchronous(config) && !is_served(config) && parts_of(config) == 1; },
        "allreduce or sync, where each worker has the whole network"},
    OptionUse{"standby", replaces_workers,
              "jobs in which another can take a dead worker's place: not with --servers 0 and --replication 1"},
    OptionUse{"gossip-quorum", [](const RunConfig& config) { return config.algorithm == "gossip"; }, "gossip"},
    OptionUse{"hogwild-locks", [](const RunConfig& config) { return config.algorithm == "hogwild"; }, "hogwild"},
    OptionUse{"epochs", kNotSandblaster, "others: sandblaster counts --iterations"},
    OptionUse{"lr", kNotSandblaster, kOthers},
    OptionUse{"optimizer", kNotSandblaster, kOthers},
    OptionUse{"momentum", kNotSandblaster, kOthers},
    OptionUse{"nesterov", kNotSandblaster, kOthers},
    OptionUse{"clip-norm", kNotSandblaster, kOthers},
    OptionUse{"clip-value", kNotSandblaster, kOthers},
    OptionUse{"accumulate", kNotSandblaster, kOthers},
    OptionUse{"schedule", kNotSandblaster, kOthers},
    OptionUse{"warmup-epochs", kNotSandblaster, kOthers},
};

const RunOption& option_of(std::string_view key) {
  const std::vector<RunOption>& options = run_options();
  const auto found = std::ranges::find(options, key, &RunOption::key);
  check(found != options.end(), "an option that is in the table and nowhere else");
  return *found;
}

}  // namespace

void check_algorithm_options(const RunConfig& config) {
  const RunConfig usual;
  for (const OptionUse& use : kUses) {
    const RunOption& option = option_of(use.key);
    if (const std::string value = option.get(config); !use.used(config) && value != option.get(usual)) {
      throw InputError(fmt::format("--{}{}: --algorithm {} has no use for it; it is for {}", use.key,
                                   option.value.empty() ? "" : " " + value, config.algorithm, use.by));
    }
  }
}

void leave_out_what_is_for_others(RunConfig& config) {
  const RunConfig usual;
  if (is_of_one_process(config.algorithm)) {
    config.threads *= config.workers;
    config.workers = usual.workers;
    config.hosts = usual.hosts;
    config.transport = usual.transport;
  }
  if (has_hogwild_workers(config) && !is_asynchronous_served(config)) {
    config.thread_mode = usual.thread_mode;
  }
  for (const OptionUse& use : kUses) {
    const RunOption& option = option_of(use.key);
    if (const std::string text = option.get(usual); !use.used(config) && option.get(config) != text) {
      option.set(config, text);
    }
  }
}

}  // namespace distbelief
