#include "compare/contestants.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "base/nearest_name.h"
#include "base/split.h"
#include "train/job_hosts.h"
#include "train/job_tls.h"

namespace distbelief {
namespace {

constexpr std::int64_t kUsualWorkers = 2;

/// What is compared must be the same for all.
constexpr std::array<std::string_view, 14> kShared = {
    "algorithm",  "model",      "model-options", "data",      "test-data",  "data-dir", "label-column",
    "label-kind", "image-size", "features",      "normalize", "validation", "seed",     "out"};

const std::vector<std::string>& algorithms() {
  const std::vector<RunOption>& options = run_options();
  return std::ranges::find(options, "algorithm", &RunOption::key)->choices;
}

void set_own_option(RunConfig& config, const std::string& label, const std::string& option) {
  const std::string where = "--algorithms " + label;
  const std::size_t equals = option.find('=');
  if (equals == std::string::npos) {
    throw InputError(fmt::format("{}: expected ALGORITHM:KEY=VALUE, got '{}'", where, option));
  }
  const std::string key = option.substr(0, equals);
  if (std::ranges::find(kShared, key) != kShared.end()) {
    throw InputError(fmt::format("{}: '{}' is the same for all runs of a comparison", where, key));
  }
  set_option(config, key, option.substr(equals + 1), where);
}

std::string folder_name(const std::string& label) {
  std::string name = label;
  std::ranges::replace_if(
      name,
      [](char c) {
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.';
        return !plain;
      },
      '-');
  return name;
}

Contestant contestant_of(const std::string& label, const RunConfig& common) {
  const std::vector<std::string> parts = split(label, ':');
  const std::string& name = parts.front();
  if (std::ranges::find(algorithms(), name) == algorithms().end()) {
    const std::vector<std::string_view> names(algorithms().begin(), algorithms().end());
    throw InputError(fmt::format("--algorithms: there is no algorithm '{}'{}; possible: {}", name,
                                 did_you_mean(name, names), listed(names)));
  }
  Contestant contestant = {.label = label, .folder = folder_name(label), .config = common};
  contestant.config.algorithm = name;
  leave_out_what_is_for_others(contestant.config);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    set_own_option(contestant.config, label, parts[i]);
  }
  try {
    check_config(contestant.config);
  } catch (const InputError& error) {
    throw InputError(fmt::format("--algorithms {}: {}; leave it out, or give it options of its own, as in {}:KEY=VALUE",
                                 label, error.what(), name));
  }
  return contestant;
}

}  // namespace

std::string all_algorithms() { return fmt::format("{}", fmt::join(algorithms(), ",")); }

std::vector<Contestant> contestants_of(const std::string& list, const RunConfig& common) {
  RunConfig settled = common;
  settle_grid(settled);
  settle_hosts(settled, kUsualWorkers);
  settle_tls(settled);
  std::vector<Contestant> contestants;
  for (const std::string& label : split(list, ',')) {
    Contestant contestant = contestant_of(label, settled);
    if (std::ranges::find(contestants, contestant.folder, &Contestant::folder) != contestants.end()) {
      throw InputError(
          fmt::format("--algorithms: '{}' is there twice; options of its own make it another: {}:KEY=VALUE", label,
                      contestant.config.algorithm));
    }
    contestants.push_back(std::move(contestant));
  }
  return contestants;
}

}  // namespace distbelief
