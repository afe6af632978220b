#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/json.h"
#include "base/print.h"
#include "commands.h"
#include "data/loader.h"
#include "data_options.h"
#include "loaded_model.h"
#include "metrics/format.h"
#include "text_layout.h"
#include "train/evaluate.h"
#include "train/run_data.h"

namespace distbelief {
namespace {

struct EvalArguments {
  std::string model;
  std::string data;
  DataOptions reading;
  ComputeOptions computing;
  bool json = false;
};

/// How samples of one class fared.
struct ClassCount {
  std::int64_t samples = 0;
  std::int64_t right = 0;
  std::vector<std::int64_t> taken_for;  ///< by class; empty when there are too many classes
};

struct Evaluation {
  std::string data;
  std::string part;
  LossSums sums;
  std::vector<ClassCount> classes;
};

constexpr std::size_t kMostConfused = 2000;  // classes for which a table of every pair is kept

DataRequest request_of(const EvalArguments& arguments, const LoadedModel& model) {
  DataRequest request;
  if (model.run()) {
    request = data_request(*model.run());
  } else {
    request.source = model.card().data;
  }
  if (!arguments.data.empty()) {
    request.source = arguments.data;
    request.test_source.clear();
  }
  arguments.reading.apply_to(request);
  return request;
}

Evaluation evaluate_model(const EvalArguments& arguments, LoadedModel& model) {
  const ModelData data = open_model_data(model.card(), request_of(arguments, model));
  const bool test = arguments.reading.split == "test" && data.test != nullptr;
  const Dataset& dataset = test ? *data.test : *data.train;
  Evaluation result;
  result.data = data.name;
  result.part = test ? "test" : data.test != nullptr ? "train" : "all";
  const std::size_t classes = model.has_classes() ? static_cast<std::size_t>(model.card().model.data.classes) : 0;
  result.classes.resize(classes);
  for (ClassCount& count : result.classes) {
    count.taken_for.resize(classes <= kMostConfused ? classes : 0);
  }
  Loader loader(dataset, Sampler(dataset.size(), 0, false), {.batch = arguments.computing.batch, .end_epoch = 1});
  std::vector<float> scores;
  std::vector<float> row;
  while (const Batch* batch = loader.next()) {
    scores.clear();
    model.replica().predict(*batch, scores);
    const auto columns = static_cast<std::int64_t>(scores.size()) / batch->size();
    result.sums +=
        model.loss().evaluate(scores.data(), batch->size(), columns, {batch->classes, batch->targets}, nullptr);
    for (std::size_t i = 0; classes > 0 && i < batch->classes.size(); ++i) {
      const auto width = static_cast<std::size_t>(columns);
      class_scores(model.loss(), std::span<const float>(scores).subspan(i * width, width), row);
      const auto guess = static_cast<std::size_t>(std::ranges::max_element(row) - row.begin());
      const auto truth = static_cast<std::size_t>(batch->classes[i]);
      ClassCount& count = result.classes[truth];
      ++count.samples;
      count.right += guess == truth ? 1 : 0;
      if (!count.taken_for.empty()) {
        ++count.taken_for[guess];
      }
    }
  }
  return result;
}

/// The class that samples of class `truth` are most often mistaken for; `truth` itself when none is.
std::size_t worst_mistake(const ClassCount& count, std::size_t truth) {
  std::size_t worst = truth;
  for (std::size_t guess = 0; guess < count.taken_for.size(); ++guess) {
    if (guess != truth && count.taken_for[guess] > (worst == truth ? 0 : count.taken_for[worst])) {
      worst = guess;
    }
  }
  return worst;
}

double share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

void show(const Evaluation& result, const LoadedModel& model, const Terminal& terminal) {
  const char* part = result.part == "all" ? "" : result.part == "test" ? ", test part" : ", training part";
  print_out("data      {}{}: {} samples\n", result.data, part, grouped(static_cast<std::uint64_t>(result.sums.rows)));
  print_out("loss      {}\n", measure_text(mean_loss(result.sums)));
  if (result.classes.empty()) {
    return;
  }
  print_out("accuracy  {} ({} right)\n\n", percent_text(accuracy(result.sums)),
            grouped(static_cast<std::uint64_t>(result.sums.correct)));
  std::vector<std::size_t> order;
  for (std::size_t c = 0; c < result.classes.size(); ++c) {
    order.push_back(c);
  }
  constexpr std::size_t kMostRows = 60;
  if (order.size() > kMostRows) {
    std::ranges::stable_sort(order, {}, [&](std::size_t c) {
      const ClassCount& count = result.classes[c];
      return count.samples == 0 ? 2.0 : share(count.right, count.samples);
    });
    order.resize(20);
    print_out("the 20 of {} classes that do worst; --json has all\n", result.classes.size());
  }
  std::vector<std::vector<std::string>> rows = {{"class", "samples", "accuracy", "most often taken for"}};
  for (const std::size_t c : order) {
    const ClassCount& count = result.classes[c];
    const std::size_t worst = worst_mistake(count, c);
    rows.push_back({model.class_name(c), grouped(static_cast<std::uint64_t>(count.samples)),
                    count.samples == 0 ? "-" : percent_text(share(count.right, count.samples)),
                    worst == c ? "" : fmt::format("{} ({})", model.class_name(worst), count.taken_for[worst])});
  }
  print_out("{}", table_text(rows, {1, 2}, terminal.width));
}

void show_json(const Evaluation& result, const LoadedModel& model) {
  Json root = {{"model", model.card().model.source},
               {"data", result.data},
               {"part", result.part},
               {"samples", result.sums.rows},
               {"loss", mean_loss(result.sums)}};
  if (!result.classes.empty()) {
    root["accuracy"] = accuracy(result.sums);
    root["correct"] = result.sums.correct;
    root["classes"] = Json::array();
    for (std::size_t c = 0; c < result.classes.size(); ++c) {
      const ClassCount& count = result.classes[c];
      root["classes"].push_back({{"class", c},
                                 {"name", model.class_name(c)},
                                 {"samples", count.samples},
                                 {"correct", count.right},
                                 {"accuracy", share(count.right, count.samples)}});
    }
  }
  print_out("{}\n", json_text(root, 2));
}

}  // namespace

void add_eval_command(CLI::App& app, const Terminal& terminal) {
  CLI::App* command = app.add_subcommand("eval", "Measure a trained model: loss and accuracy, class by class");
  command->group("Train and use");
  const auto arguments = std::make_shared<EvalArguments>();  // shared with the callback
  command->add_option("MODEL|RUN", arguments->model, "a model.safetensors, or the folder of a run")->required();
  command->add_option("--data", arguments->data, "a data set, a file or a folder; default: what it was trained on")
      ->type_name("NAME|FILE|DIR")
      ->group("Data");
  add_test_data_option(*command, arguments->reading, "the test part, when the data has none of its own");
  add_reading_options(*command, arguments->reading);
  add_split_option(*command, arguments->reading, "which part of the data; all of it, when it has no parts [test]");
  add_compute_options(*command, arguments->computing);
  command->add_flag("--json", arguments->json, "print JSON, for scripts")->group("Output");
  command->footer(
      "Examples:\n"
      "  distbelief eval runs/first\n"
      "  distbelief eval runs/first --split train\n"
      "  distbelief eval model.safetensors --data table.csv --json");
  command->callback([arguments, &terminal] {
    LoadedModel model(arguments->model, arguments->computing);
    const Evaluation result = evaluate_model(*arguments, model);
    arguments->json ? show_json(result, model) : show(result, model, terminal);
  });
}

}  // namespace distbelief
