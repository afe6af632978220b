#include <unistd.h>

#include <cmath>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/folder_lock.h"
#include "base/print.h"
#include "cluster/child_process.h"
#include "cluster/launcher.h"
#include "commands.h"
#include "compare/comparison.h"
#include "compare/contestants.h"
#include "given_config.h"
#include "metrics/format.h"
#include "signals.h"
#include "text_layout.h"
#include "train/machine_costs.h"
#include "train/run_folder.h"
#include "train/trainer.h"

namespace distbelief {
namespace {

constexpr std::chrono::milliseconds kTurn{50};
constexpr std::int64_t kUsualEpochs = 20;  // slow beginners shall have a chance to reach the target

struct CompareArguments {
  std::optional<std::string> algorithms;
  std::optional<std::string> target;
  std::optional<std::string> resume;
  GivenConfig given;
};

double target_of(const std::string& text, bool is_accuracy) {
  std::size_t read = 0;
  double target = -1;
  try {
    target = std::stod(text, &read);
  } catch (const std::exception&) {
    read = 0;
  }
  const bool sound = read == text.size() && std::isfinite(target) && target > 0 && (!is_accuracy || target <= 1);
  if (!sound) {
    throw InputError(fmt::format("--target {}: expected {}", text,
                                 is_accuracy ? "an accuracy above 0, up to 1, such as 0.88" : "a loss above 0"));
  }
  return target;
}

/// runs/compare-MODEL-DATA-N, the first that is free, unless the user said where.
std::filesystem::path new_folder(const RunConfig& common, const CheckedRun& checked) {
  if (!common.out.empty()) {
    if (std::filesystem::exists(std::filesystem::path(common.out) / "compare.json")) {
      throw InputError(
          fmt::format("--out {0}: there is a comparison in this folder; choose another, or go on with it: distbelief "
                      "compare --resume {0}",
                      common.out));
    }
    return common.out;
  }
  return free_folder("compare-" + checked.model, checked.data);
}

/// Checks everything before the first folder is made.
std::pair<std::filesystem::path, Comparison> begin(const CompareArguments& arguments, const JobPlace& place) {
  const PlanKnowledge knowledge = {.cache = cache_folder(place.environment),
                                   .note = [](std::string_view line) { print_out("{}\n", line); }};
  RunConfig unsaid;
  unsaid.workers = 0;
  unsaid.epochs = kUsualEpochs;
  const RunConfig common = resolve_given(unsaid, arguments.given);
  const std::vector<Contestant> contestants = contestants_of(arguments.algorithms.value_or(all_algorithms()), common);
  const CheckedRun checked = check_run(contestants.front().config, knowledge);
  std::vector<CheckedRun> all(contestants.size(), checked);
  for (std::size_t i = 1; i < contestants.size(); ++i) {
    const Contestant& contestant = contestants[i];
    // Those of whole networks without options of their own are like the first.
    if (contestant.label != contestant.config.algorithm || parts_of(contestant.config) > 1) {
      all[i] = check_run(contestant.config, knowledge);
    }
  }
  if (!checked.has_test && !checked.has_validation) {
    throw InputError(fmt::format(
        "--data {}: there is no data to test with, which is what a comparison is of: --test-data or --validation",
        common.data));
  }
  Comparison comparison = {.model = checked.model,
                           .data = checked.data,
                           .seed = common.seed,
                           .measure = {.is_accuracy = checked.has_classes, .on_validation = !checked.has_test},
                           .machine = this_machine(),
                           .entries = {},
                           .runs = {}};
  if (arguments.target) {
    comparison.measure.target = target_of(*arguments.target, checked.has_classes);
  }
  const std::filesystem::path folder = new_folder(common, checked);
  for (std::size_t i = 0; i < contestants.size(); ++i) {
    comparison.entries.push_back({.label = contestants[i].label, .folder = contestants[i].folder});
    RunConfig config = contestants[i].config;
    config.out = (folder / contestants[i].folder).string();
    (void)make_run_folder(config, all[i]);
  }
  return {folder, comparison};
}

/// Goes on with one run in a process of its own, which shows itself. When this one is asked to stop, so is it.
ProcessEnd train_here(const JobPlace& place, const std::filesystem::path& folder, const std::string& label) {
  ProcessSpec spec = {.name = label,
                      .argv = {place.program, "train", "--resume", folder.string()},
                      .environment = place.environment,
                      .shows_output = true};
  spec.environment.push_back(fmt::format("{}={}", kLauncherPidVariable, ::getpid()));
  ChildProcess child(spec);
  bool told = false;
  while (true) {
    if (const std::optional<ProcessEnd> end = child.wait(Clock::now() + kTurn)) {
      return *end;
    }
    if (stop_signal() != 0 && !std::exchange(told, true)) {
      child.signal(stop_signal());
    }
  }
}

void show_heading(const Terminal& terminal, std::size_t number, std::size_t count, const std::string& label) {
  const std::string text = fmt::format("{} of {}: {}", number, count, label);
  print_out("{}{}{}\n", terminal.color ? "\033[1m" : "", text, terminal.color ? "\033[0m" : "");
  std::fflush(stdout);
}

void show_results(const Terminal& terminal, const std::filesystem::path& folder, const Comparison& comparison) {
  const std::vector<std::vector<std::string>> rows = comparison_rows(comparison);
  std::vector<std::size_t> right;
  for (std::size_t column = 1; column < rows.front().size(); ++column) {
    right.push_back(column);
  }
  print_out("{} on {}: {}\n\n{}\n", comparison.model, comparison.data, comparison.measure.name(),
            table_text(rows, right, terminal.width));
  for (const ComparedRun& run : comparison.runs) {
    if (!run.problem.empty()) {
      print_out("{} {}: {}\n", run.label, run.status, run.problem);
    }
  }
  print_out("page            {}\nresults         {}\n", (folder / "compare.html").string(),
            (folder / "compare.json").string());
}

int compare(const CompareArguments& arguments, const Terminal& terminal, const JobPlace& place) {
  std::filesystem::path folder = arguments.resume.value_or("");
  Comparison comparison;
  if (!arguments.resume) {
    std::tie(folder, comparison) = begin(arguments, place);
  } else {
    if (!arguments.given.empty() || arguments.algorithms || arguments.target) {
      throw InputError("--resume goes on with a comparison as it was begun: expected no other option beside it");
    }
    comparison = read_comparison(folder);
    comparison.machine = this_machine();
  }
  const FolderLock lock(folder);  // the runs in it have their own
  catch_stop_signals();
  comparison.look(folder);
  write_comparison(folder, comparison);
  const std::size_t count = comparison.entries.size();
  for (std::size_t i = 0; i < count && stop_signal() == 0; ++i) {
    if (comparison.runs[i].is_over()) {
      continue;
    }
    show_heading(terminal, i + 1, count, comparison.entries[i].label);
    const ProcessEnd end = train_here(place, folder / comparison.entries[i].folder, comparison.entries[i].label);
    comparison.look(folder);
    ComparedRun& run = comparison.runs[i];
    if (!run.is_over() && run.problem.empty() && stop_signal() == 0) {
      run.problem = fmt::format("its process {}", describe(end));
    }
    write_comparison(folder, comparison);
    print_out("\n");
  }
  show_results(terminal, folder, comparison);
  if (comparison.is_over()) {
    return 0;
  }
  print_out("\n{}; go on with: distbelief compare --resume {}\n",
            stop_signal() == 0 ? "some runs have not ended by themselves" : "stopped", folder.string());
  return stop_signal() == 0 ? 4 : 128 + stop_signal();
}

}  // namespace

void add_compare_command(CLI::App& app, const Terminal& terminal, const JobPlace& place, int& exit_code) {
  CLI::App* command = app.add_subcommand("compare", "Train with several algorithms and show them side by side");
  command->group("Train and use");
  const auto arguments =
      std::make_shared<CompareArguments>();  // shared with the callback, which outlives this function
  command
      ->add_option("--algorithms", arguments->algorithms,
                   "which, in this order; each may have options of its own: downpour:n-push=8:lr=0.02 [all]")
      ->type_name("NAME[:KEY=VALUE...],...")
      ->group("Comparison");
  command
      ->add_option("--target", arguments->target,
                   "an accuracy on test data, such as 0.88, the time to which is compared; without classes a loss")
      ->type_name("SCORE")
      ->group("Comparison");
  command->add_option("--resume", arguments->resume, "go on with the comparison in this folder")
      ->type_name("DIR")
      ->group("Comparison");
  add_given_config(*command, arguments->given, {"algorithm"});
  command->footer(
      "All other options are those of 'distbelief train' and hold for all runs, except that without them there are 2 "
      "workers and 20 epochs. What is for some algorithms only, such as --n for softsync, holds for those.\n"
      "\n"
      "Examples:\n"
      "  distbelief compare --model mlp --target 0.88          all algorithms on Fashion-MNIST\n"
      "  distbelief compare --algorithms allreduce,downpour,downpour:n-push=8 --workers 4 --servers 2\n"
      "  distbelief compare --resume runs/compare-mlp-fashion-mnist-1");
  command->callback([arguments, &terminal, place, &exit_code] {
    if (place.mpi.size > 1) {
      throw InputError("compare starts the processes of its runs itself: expected to be started once, without mpirun");
    }
    exit_code = compare(*arguments, terminal, place);
  });
}

}  // namespace distbelief
