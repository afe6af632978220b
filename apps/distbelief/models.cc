#include <fmt/format.h>

#include <memory>

#include "base/json.h"
#include "base/print.h"
#include "commands.h"
#include "metrics/format.h"
#include "models/network.h"
#include "models/zoo.h"
#include "text_layout.h"

namespace distbelief {
namespace {

void show(const Terminal& terminal) {
  std::vector<std::vector<std::string>> rows = {{"model", "parameters", "what it is"}};
  for (const ModelInfo& model : known_models()) {
    std::string about = model.description + "\n  made for " + describe(model.default_data);
    for (const ModelOption& option : model.options) {
      about += fmt::format("\n  {}={}  {}", option.name, option.default_value, option.meaning);
    }
    rows.push_back({model.name, grouped(static_cast<std::uint64_t>(model.parameters)), about});
  }
  print_out("{}\n", table_text(rows, {1}, terminal.width));
  print_out("{}\n", wrapped("Each adapts to the data's shape and classes. Options are given as --model-options "
                            "NAME=VALUE; 'distbelief info MODEL' shows the layers; docs/models.md says how to write a "
                            "model of your own.",
                            0, terminal.width));
}

void show_json() {
  Json root = Json::array();
  for (const ModelInfo& model : known_models()) {
    Json options = Json::array();
    for (const ModelOption& option : model.options) {
      options.push_back({{"name", option.name}, {"default", option.default_value}, {"meaning", option.meaning}});
    }
    root.push_back({{"name", model.name},
                    {"description", model.description},
                    {"parameters", model.parameters},
                    {"input", model.default_data.input.dims()},
                    {"sparse", model.default_data.sparse},
                    {"classes", model.default_data.classes},
                    {"options", options}});
  }
  print_out("{}\n", json_text(root, 2));
}

}  // namespace

void add_models_command(CLI::App& app, const Terminal& terminal) {
  CLI::App* command = app.add_subcommand("models", "List the models that are built in, with their options");
  command->group("Look around");
  const auto json = std::make_shared<bool>(false);  // shared with the callback
  command->add_flag("--json", *json, "print JSON, for scripts")->group("Output");
  command->callback([json, &terminal] { *json ? show_json() : show(terminal); });
}

}  // namespace distbelief
