#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/json.h"
#include "base/parallel.h"
#include "base/print.h"
#include "checks.h"
#include "commands.h"
#include "data_options.h"
#include "exec/program.h"
#include "exec/thread_mode.h"
#include "given_config.h"
#include "loaded_model.h"
#include "metrics/format.h"
#include "metrics/machine.h"
#include "models/model_text.h"
#include "params/update_rule.h"
#include "plan/parameter_layout.h"

namespace distbelief {
namespace {

struct InfoArguments {
  std::string model;
  GivenOptions model_options;
  std::string data;
  DataOptions reading;
  std::string input;
  std::int64_t classes = 0;
  std::int64_t batch = 128;
  int threads = 0;
  std::string optimizer = "sgd";
  bool json = false;
};

/// Bytes that training takes, as the executor plans it.
struct TrainingMemory {
  std::uint64_t parameters = 0;
  std::uint64_t gradients = 0;
  std::uint64_t optimizer = 0;
  std::uint64_t activations = 0;
  std::uint64_t total() const { return parameters + gradients + optimizer + activations; }
};

TrainingMemory training_memory(const Graph& graph, const InfoArguments& arguments, int threads, ThreadMode mode) {
  const ParameterTable table = layout_parameters(graph);
  const auto lanes = mode == ThreadMode::lanes ? std::min<std::int64_t>(threads, arguments.batch) : 1;
  set_thread_count(mode == ThreadMode::lanes ? 1 : threads);
  const Program program(graph, table, (arguments.batch + lanes - 1) / lanes, Purpose::training);
  TrainingMemory memory;
  memory.parameters = static_cast<std::uint64_t>(table.size()) * sizeof(float);
  memory.gradients = memory.parameters * static_cast<std::uint64_t>(lanes);
  memory.optimizer = static_cast<std::uint64_t>(table.optimized_size()) * sizeof(float) *
                     static_cast<std::uint64_t>(make_rule({.name = arguments.optimizer})->slots());
  memory.activations = program.arena_bytes() * static_cast<std::uint64_t>(lanes);
  return memory;
}

bool is_trained(const std::string& source) {
  return source.ends_with(".safetensors") || std::filesystem::is_directory(source);
}

Graph graph_for(const InfoArguments& arguments) {
  if (is_trained(arguments.model)) {
    if (!arguments.data.empty() || !arguments.input.empty() || arguments.classes > 0 ||
        !arguments.model_options.empty()) {
      throw InputError(fmt::format(
          "{}: a trained model has its shapes; --data, --input, --classes and --model-options are for others",
          arguments.model));
    }
    expect_model(arguments.model);
    return graph_of(read_card(arguments.model));
  }
  if (arguments.data.empty() && !(arguments.reading.data_dir.empty() && arguments.reading.label_column.empty())) {
    throw InputError("--data-dir and --label-column say how to read --data, which is missing");
  }
  ModelRequest request{.source = arguments.model};
  RunConfig options;
  for (const auto& [key, value] : arguments.model_options) {
    set_option(options, key, value, "--" + key + " " + value);
  }
  request.options = options.model_options;
  if (!arguments.data.empty()) {
    DataRequest data;
    data.source = arguments.data;
    arguments.reading.apply_to(data);
    request.data = open_data(data).train->spec();
  }
  if (!arguments.input.empty()) {
    request.data.input = parse_shape(arguments.input);
    if (arguments.data.empty()) {
      request.data.classes = 10;
    }
  }
  if (arguments.classes > 0) {
    if (request.data.input.rank() == 0) {
      throw InputError("--classes needs --input or --data: the shape of a sample");
    }
    request.data.classes = arguments.classes;
    request.data.targets = 0;
  }
  return make_model(request);
}

void show(const Graph& graph, const ModelSummary& summary, const TrainingMemory& memory, const InfoArguments& arguments,
          int threads, ThreadMode mode) {
  std::string text = model_text(summary);
  text.erase(text.rfind("activations"));  // the executor's own numbers follow
  print_out("{}", text);
  const double step_flops = 3.0 * static_cast<double>(graph.flops()) * static_cast<double>(arguments.batch);
  print_out("FLOPs        {:.3g} G a step of batch {}, forward and backward\n", step_flops / 1e9, arguments.batch);
  print_out("\nmemory of training, batch {}, {}, {} thread{}{}\n", arguments.batch, arguments.optimizer, threads,
            threads == 1 ? "" : "s", mode == ThreadMode::lanes && threads > 1 ? ", each on its part of the batch" : "");
  print_out("  parameters   {:>10}\n", bytes_text(memory.parameters));
  print_out("  gradients    {:>10}\n", bytes_text(memory.gradients));
  print_out("  optimizer    {:>10}\n", bytes_text(memory.optimizer));
  print_out("  activations  {:>10}\n", bytes_text(memory.activations));
  print_out("  together     {:>10}\n", bytes_text(memory.total()));
}

void show_json(const ModelSummary& summary, const TrainingMemory& memory, const InfoArguments& arguments, int threads,
               ThreadMode mode) {
  Json root = {{"model", summary.name},
               {"loss", summary.loss},
               {"parameters", summary.parameters},
               {"statistics", summary.statistics},
               {"flops", summary.flops},
               {"batch", arguments.batch},
               {"threads", threads},
               {"thread_mode", thread_mode_name(mode)},
               {"memory",
                {{"parameters", memory.parameters},
                 {"gradients", memory.gradients},
                 {"optimizer", memory.optimizer},
                 {"activations", memory.activations},
                 {"total", memory.total()}}},
               {"layers", Json::array()}};
  for (const LayerRow& row : summary.rows) {
    root["layers"].push_back({{"name", row.name},
                              {"type", row.type},
                              {"inputs", row.inputs},
                              {"output", row.output.dims()},
                              {"parameters", row.parameters},
                              {"flops", row.flops}});
  }
  print_out("{}\n", json_text(root, 2));
}

}  // namespace

void add_info_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("info", "Show a model: layers, shapes, parameters, operations, memory");
  command->group("Look around");
  const auto arguments = std::make_shared<InfoArguments>();  // shared with the callback
  command
      ->add_option("MODEL|FILE|RUN", arguments->model,
                   "a model that 'distbelief models' lists, a model file in YAML, a model.safetensors or the folder of "
                   "a run")
      ->required();
  command->add_option("--data", arguments->data, "build it for this data; default: what it was made for")
      ->type_name("NAME|FILE|DIR")
      ->group("Data");
  add_reading_options(*command, arguments->reading);
  command->add_option("--input", arguments->input, "build it for samples of this shape, such as 3x224x224")
      ->type_name("SHAPE")
      ->group("Shapes");
  command->add_option("--classes", arguments->classes, "with --input: how many classes [10]")
      ->type_name("N")
      ->check(whole_number(1, 100000000))
      ->group("Shapes");
  command
      ->add_option_function<std::string>(
          "--model-options",
          [arguments](const std::string& text) { arguments->model_options.emplace_back("model-options", text); },
          "sizes of the model, where it has any: see 'distbelief models'")
      ->type_name("K=V,...")
      ->group("Shapes");
  command->add_option("--batch", arguments->batch, "memory is shown for this batch [128]")
      ->type_name("N")
      ->check(whole_number(1, 1 << 24))
      ->group("Memory");
  command->add_option("--threads", arguments->threads, "and so many threads; 0: all cores this process may use [0]")
      ->type_name("N")
      ->check(whole_number(0, 4096))
      ->group("Memory");
  command->add_option("--optimizer", arguments->optimizer, "and this update rule [sgd]")
      ->type_name("RULE")
      ->group("Memory");
  command->add_flag("--json", arguments->json, "print JSON, for scripts")->group("Output");
  command->footer(
      "Examples:\n"
      "  distbelief info resnet50 --batch 16\n"
      "  distbelief info mlp --model-options hidden=1024,256 --data fashion-mnist\n"
      "  distbelief info net.yaml --input 3x64x64 --classes 20\n"
      "  distbelief info runs/first --json");
  command->callback([arguments] {
    const Graph graph = graph_for(*arguments);
    const ModelSummary summary = summarize(graph);
    const int threads = arguments->threads > 0 ? arguments->threads : std::max(1, this_machine().threads);
    const ThreadMode mode = faster_thread_mode(graph, arguments->batch, threads);
    const TrainingMemory memory = training_memory(graph, *arguments, threads, mode);
    arguments->json ? show_json(summary, memory, *arguments, threads, mode)
                    : show(graph, summary, memory, *arguments, threads, mode);
  });
}

}  // namespace distbelief
