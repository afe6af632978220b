#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/print.h"
#include "checks.h"
#include "commands.h"
#include "data_options.h"
#include "given_config.h"
#include "metrics/format.h"
#include "metrics/machine.h"
#include "models/zoo.h"
#include "output_file.h"
#include "plan/parameter_layout.h"
#include "plan_view.h"
#include "quantities.h"
#include "text_layout.h"
#include "train/machine_costs.h"
#include "train/run_data.h"

namespace distbelief {
namespace {

struct PlanArguments {
  GivenConfig given;
  std::string input;
  std::int64_t classes = 0;
  std::int64_t machines = 0;
  std::string bandwidth;
  std::string latency;
  std::string memory;
  std::string speed;
  std::string speedup;
  std::string html;
  std::string save;
  bool json = false;
};

/// Of a run's options those that change a plan.
const std::set<std::string>& planned_options() {
  static const std::set<std::string> kKeys = {"model",      "model-options", "data",     "data-dir",  "label-column",
                                              "label-kind", "image-size",    "features", "batch",     "freeze",
                                              "accumulate", "optimizer",     "momentum", "nesterov",  "partition",
                                              "stages",     "tensor",        "replicas", "stage-at",  "cuts",
                                              "shares",     "micro-batches", "pipeline", "recompute", "threads"};
  return kKeys;
}

SampleSpec samples_of(const PlanArguments& arguments, const RunConfig& config) {
  SampleSpec spec;
  if (!config.data.empty()) {
    spec = open_data(data_request(config)).train->spec();
  }
  if (!arguments.input.empty()) {
    spec.input = parse_shape(arguments.input);
    spec.classes = config.data.empty() ? 10 : spec.classes;
  }
  if (arguments.classes > 0) {
    if (spec.input.rank() == 0) {
      throw InputError("--classes needs --input or --data: the shape of a sample");
    }
    spec.classes = arguments.classes;
    spec.targets = 0;
  }
  return spec;
}

/// What was given, with the grid that --machines makes of it.
RunConfig config_of(const PlanArguments& arguments) {
  RunConfig unsaid;
  unsaid.data.clear();
  unsaid.workers = 0;
  RunConfig config = resolve_given(unsaid, arguments.given);
  if (arguments.machines > 0) {
    config.workers = 0;
    if (config.partition == 0 && config.stages == 0 && config.tensor == 0) {
      config.partition = arguments.machines / std::max<std::int64_t>(1, config.replicas);
    }
    const std::int64_t parts = parts_of(config);
    if (arguments.machines % parts != 0) {
      throw InputError(
          fmt::format("--machines {}: expected a multiple of {}, the processes of each copy of the network",
                      arguments.machines, parts));
    }
    if (config.replicas > 0 && config.replicas * parts != arguments.machines) {
      throw InputError(
          fmt::format("--machines {} contradicts --replicas {} of {} processes each; leave one of them out",
                      arguments.machines, config.replicas, parts));
    }
    config.replicas = arguments.machines / parts;
  } else if (config.partition == 0 && config.stages == 0 && config.tensor == 0 && arguments.speedup.empty()) {
    throw InputError(
        "a plan is for a network over several processes: expected --partition N, --stages, --tensor or --machines");
  }
  if (config.algorithm == "local") {
    config.algorithm = "allreduce";
  }
  settle_grid(config);
  config.workers = std::max(config.workers, parts_of(config));
  check_config(config);
  return config;
}

std::vector<std::int64_t> counts_in(const std::string& text) {
  std::vector<std::int64_t> counts;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    std::int64_t count = 0;
    const auto [stop, error] = std::from_chars(at, end, count);
    if (error != std::errc() || count < 1 || count > 4096 || (stop < end && (*stop != ',' || stop + 1 == end))) {
      throw InputError(
          fmt::format("--speedup {}: expected numbers of machines from 1 to 4096 with commas between, such as "
                      "1,2,4,8",
                      text));
    }
    counts.push_back(count);
    at = stop + 1;
  }
  return counts;
}

/// The machine that is asked about, and in words where its figures come from.
struct Surroundings {
  PlanPlace place;
  std::unique_ptr<MeasuredLayers> measured;
  bool shows = false;  ///< how many layers are measured, on the terminal
  std::string costs;
  std::string links;
  std::vector<std::string> notes;

  /// After all is weighed.
  void finish() {
    if (measured != nullptr) {
      if (shows && measured->measured() > 0) {
        print_out("\r\033[K");
      }
      costs = measured->finish(notes);
    }
  }
};

Surroundings surroundings_of(const PlanArguments& arguments, const RunConfig& config, const Terminal& terminal,
                             const JobPlace& here) {
  Surroundings around;
  MachineModel& machine = around.place.machine;
  const bool elsewhere = arguments.machines > 0 || !arguments.speedup.empty();
  if (!arguments.memory.empty()) {
    around.place.memory_limit = parse_bytes("memory", arguments.memory);
  }
  std::string from = "as given";
  if (elsewhere) {
    machine.link_bandwidth = kUsualLink.bandwidth;
    machine.link_latency = kUsualLink.latency;
    from = "of other machines";
  } else if (arguments.bandwidth.empty() || arguments.latency.empty()) {
    if (const std::optional<LinkSpeed> speed = measured_link(cache_folder(here.environment), around.notes)) {
      machine.link_bandwidth = speed->bandwidth;
      machine.link_latency = speed->latency;
      from = "measured between two threads over a socket of this machine";
    } else {
      from = "guessed: no socket could be had";
    }
  }
  if (!arguments.bandwidth.empty()) {
    machine.link_bandwidth = parse_bandwidth("bandwidth", arguments.bandwidth);
  }
  if (!arguments.latency.empty()) {
    machine.link_latency = parse_latency("latency", arguments.latency);
  }
  if (!arguments.bandwidth.empty() || !arguments.latency.empty()) {
    from = arguments.bandwidth.empty() || arguments.latency.empty() ? "partly as given, partly " + from : "as given";
  }
  around.links =
      fmt::format("{} B/s, {}: {}", short_number(machine.link_bandwidth), short_time(machine.link_latency), from);
  if (!arguments.speed.empty()) {
    machine.flops = parse_rate("speed", arguments.speed);
    around.costs = fmt::format("{} operations a second of each process, as given; {} B/s of memory",
                               short_number(machine.flops), short_number(machine.memory_bandwidth));
    return around;
  }
  const int cores = std::max(1, this_machine().threads);
  const auto sharers = static_cast<int>(elsewhere ? 1 : config.workers);
  const int threads = config.threads > 0 ? static_cast<int>(config.threads) : std::max(1, cores / sharers);
  around.shows = terminal.is_terminal && !arguments.json;
  std::function<void(int)> count;
  if (around.shows) {
    count = [](int before) {
      print_out("\rmeasuring layers: {} ", before + 1);
      std::fflush(stdout);
    };
  }
  const TimedLoad load = load_of_machine(sharers, threads);
  around.measured = std::make_unique<MeasuredLayers>(cache_folder(here.environment), load, std::move(count));
  machine.memory_bandwidth =
      measured_memory(cache_folder(here.environment), load, around.notes).value_or(machine.memory_bandwidth);
  machine.times = &around.measured->times();
  if (!elsewhere && threads * config.workers > cores) {
    around.notes.push_back(
        fmt::format("{} processes of {} thread{} have {} cores here: a step takes longer than with a core for each, "
                    "which is predicted",
                    config.workers, threads, threads == 1 ? "" : "s", cores));
  }
  return around;
}

void expect_sound(const std::vector<WeighedCut>& cuts, const Graph& graph, const RunConfig& config,
                  std::int64_t limit) {
  if (!cuts.front().problem.empty()) {
    throw InputError(cuts.front().problem);
  }
  if (cuts.front().fits) {
    return;
  }
  const auto least = std::ranges::min_element(cuts, {}, [](const WeighedCut& cut) {
    return cut.problem.empty() ? cut.prediction.most_memory : std::numeric_limits<std::int64_t>::max();
  });
  throw InputError(
      fmt::format("--memory: no cut of {} over {} processes keeps each within {}: the least is {} with --stages {} "
                  "--tensor {}; more "
                  "processes, a smaller --batch{} or more --micro-batches need less",
                  graph.name(), parts_of(config), bytes_text(static_cast<std::uint64_t>(limit)),
                  bytes_text(static_cast<std::uint64_t>(least->prediction.most_memory)), least->stages, least->tensor,
                  config.recompute ? "" : ", --recompute"));
}

void show(const PlanView& plan, const Terminal& terminal) {
  const WeighedCut& cut = plan.chosen();
  print_out("{} over {}{}, {} samples a step{} in {} micro-batch{}\n\n", plan.graph->name(),
            grid_name(cut.stages, cut.tensor),
            cut.step.replicas > 1 ? fmt::format(", {} copies", cut.step.replicas) : "", cut.step.rows,
            cut.step.replicas > 1 ? " of each copy" : "", cut.step.micro_batches,
            cut.step.micro_batches == 1 ? "" : "es");
  // Two tables, as all columns are wider than a terminal.
  const std::vector<std::vector<std::string>> rows = process_rows(plan);
  std::vector<std::vector<std::string>> holds;
  std::vector<std::vector<std::string>> spends;
  for (const std::vector<std::string>& row : rows) {
    holds.push_back({row[0], row[2], row[3], row[4], row[1]});
    spends.push_back({row[0], row[6], row[7], row[8], row[9], row[5]});
  }
  print_out("{}\n{}\n", table_text(holds, {1, 2, 3}, terminal.width),
            table_text(spends, {1, 2, 3, 4, 5}, terminal.width));
  for (const auto& [name, value] : plan_facts(plan)) {
    print_out("{:<20} {}\n", name, value);
  }
  if (cut.tensor > 1) {
    print_out("{:<20} {}\n", "Layers", wrapped(cut_counts(plan), 21, terminal.width));
  }
  print_out("{:<20} {}\n", "Costs of layers", wrapped(plan.costs, 21, terminal.width));
  print_out("{:<20} {}\n", "Links", wrapped(plan.links, 21, terminal.width));
  if (const auto rejected = rejected_rows(plan); rejected.size() > 1) {
    print_out("\n{}", table_text(rejected, {1, 2}, terminal.width));
  }
  for (const std::string& note : plan.notes) {
    print_out("\n{}\n", wrapped("note: " + note, 0, terminal.width));
  }
}

void save_plan(const PlanArguments& arguments, const WeighedCut& cut) {
  if (cut.config.data.empty()) {
    throw InputError(fmt::format("--save {}: a run needs data to train on: expected --data beside it", arguments.save));
  }
  OutputFile file(arguments.save);
  file.write(config_text(cut.config));
  file.commit();
}

/// How much faster than one machine each number of machines is.
void show_speedup(const PlanArguments& arguments, const RunConfig& asked, const Graph& graph,
                  const ParameterTable& table, Surroundings& around, const Terminal& terminal) {
  std::vector<std::vector<std::string>> rows = {{"machines", "step", "speed-up", "cut"}};
  double alone = 0;
  for (const std::int64_t machines : counts_in(arguments.speedup)) {
    RunConfig config = asked;
    config.partition = machines;  // in all ways that --stages or --tensor leave, if one of them is given
    config.workers = machines;
    config.replicas = 1;
    config.stages = machines == 1 ? 1 : asked.stages;
    config.tensor = machines == 1 ? 1 : asked.tensor;
    const std::vector<WeighedCut> cuts = weigh_cuts(config, graph, table, around.place);
    if (cuts.empty()) {
      rows.push_back({fmt::format("{}", machines), "", "", "not a multiple of --stages or --tensor"});
      continue;
    }
    const WeighedCut& best = cuts.front();
    if (!best.problem.empty() || !best.fits) {
      rows.push_back(
          {fmt::format("{}", machines), "", "", best.problem.empty() ? "does not fit the memory" : best.problem});
      continue;
    }
    alone = alone == 0 ? best.prediction.step_seconds : alone;
    rows.push_back({fmt::format("{}", machines), short_time(best.prediction.step_seconds),
                    fmt::format("{:.2f}", alone / best.prediction.step_seconds), grid_name(best.stages, best.tensor)});
  }
  around.finish();
  print_out("{}: {} parameters, {} samples a step\n\n{}\n", graph.name(),
            grouped(static_cast<std::uint64_t>(table.parameter_count())), asked.batch,
            table_text(rows, {0, 1, 2}, terminal.width));
  print_out("{:<20} {}\n{:<20} {}\n", "Costs of layers", wrapped(around.costs, 21, terminal.width), "Links",
            wrapped(around.links, 21, terminal.width));
}

void plan(const PlanArguments& arguments, const Terminal& terminal, const JobPlace& here) {
  const RunConfig config = config_of(arguments);
  const Graph graph = make_model({config.model, samples_of(arguments, config), config.model_options});
  ParameterTable table = layout_parameters(graph);
  for (const std::string& pattern : config.freeze) {
    table.freeze(pattern);
  }
  Surroundings around = surroundings_of(arguments, config, terminal, here);
  if (!arguments.speedup.empty()) {
    show_speedup(arguments, config, graph, table, around, terminal);
    return;
  }
  PlanView view = {.graph = &graph, .memory_limit = around.place.memory_limit, .batch = global_batch(config)};
  view.cuts = weigh_cuts(config, graph, table, around.place);
  settle(view.cuts, graph, table, around.place.memory_limit);
  SimulatedStep alone = cut_request(config, 1, 1, around.place).step;
  alone.whole_parts = whole_part_factors(all_parts(graph, table, uncut(graph)), 1, alone);
  view.one_process = predict(graph, table, uncut(graph), alone);
  around.finish();
  expect_sound(view.cuts, graph, config, around.place.memory_limit);
  view.costs = around.costs;
  view.links = around.links;
  view.notes = around.notes;
  if (!arguments.save.empty()) {
    save_plan(arguments, view.chosen());
  }
  if (!arguments.html.empty()) {
    OutputFile file(arguments.html);
    file.write(plan_html(view));
    file.commit();
  }
  if (arguments.json) {
    print_out("{}", plan_json(view));
  } else {
    show(view, terminal);
  }
}

}  // namespace

void add_plan_command(CLI::App& app, const Terminal& terminal, const JobPlace& place) {
  CLI::App* command = app.add_subcommand("plan", "Show how a network is cut over processes, and what that will cost");
  command->group("Look around");
  const auto arguments = std::make_shared<PlanArguments>();  // shared with the callback
  std::vector<std::string> left_out;
  for (const RunOption& option : run_options()) {
    if (!planned_options().contains(option.key)) {
      left_out.push_back(option.key);
    }
  }
  const auto add = [&](const char* name, std::string& value, const char* type, const char* help, const char* group) {
    command->add_option(name, value, help)->type_name(type)->group(group);
  };
  command
      ->add_option(
          "--machines", arguments->machines,
          "plan for so many machines with a process each, which need not be here; what --partition leaves of them "
          "are more copies of the network")
      ->type_name("N")
      ->check(whole_number(1, 1 << 20))
      ->group("Cluster");
  add("--bandwidth", arguments->bandwidth, "RATE",
      "what each process can send, such as 10Gbit or 3GB [measured here; with --machines 10Gbit]", "Cluster");
  add("--latency", arguments->latency, "TIME",
      "until a message is there, such as 50us [measured here; with --machines 50us]", "Cluster");
  add("--memory", arguments->memory, "BYTES",
      "that each process may take, such as 2GB: cuts that need more are rejected", "Cluster");
  add("--speed", arguments->speed, "FLOPS",
      "operations a second of each process, such as 50G, instead of measuring layers on this machine", "Cluster");
  add("--speedup", arguments->speedup, "N,N,...",
      "instead of a plan: how much faster than one each of these numbers of machines is", "Cluster");
  add("--input", arguments->input, "SHAPE", "a sample's shape, such as 3x224x224, instead of --data", "Shapes");
  command->add_option("--classes", arguments->classes, "with --input: how many classes [10]")
      ->type_name("N")
      ->check(whole_number(1, 100000000))
      ->group("Shapes");
  add("--html", arguments->html, "FILE", "write a page with a picture, too", "Output");
  add("--save", arguments->save, "FILE", "write the plan as options of a run: distbelief train FILE", "Output");
  command->add_flag("--json", arguments->json, "print JSON, for scripts")->group("Output");
  add_given_config(*command, arguments->given, left_out);
  command->footer(
      "Without --data the network is built for what it was made for. Nothing of it is allocated, so that a plan of a "
      "network "
      "that this machine could not hold can be made here. Layers are measured the first time they are met and then "
      "remembered in $XDG_CACHE_HOME/distbelief or ~/.cache/distbelief.\n"
      "\n"
      "Examples:\n"
      "  distbelief plan --model speech --partition 4                    how would train --partition 4 cut it?\n"
      "  distbelief plan --model resnet50 --stages 4 --batch 64 --html plan.html\n"
      "  distbelief plan --model speech --partition 8 --memory 500MB     only cuts that fit\n"
      "  distbelief plan --model speech --machines 64 --partition 4 --bandwidth 10Gbit --latency 50us\n"
      "  distbelief plan --model speech --speedup 1,2,4,8,16 --bandwidth 1Gbit --speed 50G\n"
      "  distbelief plan --model mlp --data fashion-mnist --partition 2 --save plan.yaml");
  command->callback([arguments, &terminal, place] { plan(*arguments, terminal, place); });
}

}  // namespace distbelief
