#include "plan_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "base/json.h"
#include "metrics/format.h"
#include "quantities.h"

namespace distbelief {
namespace {

std::string bytes_short(std::int64_t bytes) { return bytes_text(static_cast<std::uint64_t>(bytes)); }

std::string why_not(const PlanView& plan, const WeighedCut& cut) {
  if (!cut.problem.empty()) {
    return cut.problem;
  }
  if (!cut.fits) {
    return fmt::format("does not fit: {} a process, and {} are there", bytes_short(cut.prediction.most_memory),
                       bytes_short(plan.memory_limit));
  }
  const double times = cut.prediction.step_seconds / plan.chosen().prediction.step_seconds;
  return times < 1.005 ? "as fast, within the figures shown" : fmt::format("{:.2f} times as slow", times);
}

Json json_of(const WeighedCut& cut) {
  Json root = {{"stages", cut.stages}, {"tensor", cut.tensor}};
  if (!cut.problem.empty()) {
    root["problem"] = cut.problem;
    return root;
  }
  root["fits"] = cut.fits;
  root["step_seconds"] = cut.prediction.step_seconds;
  root["bubble"] = cut.prediction.bubble;
  root["memory"] = cut.prediction.most_memory;
  return root;
}

}  // namespace

std::string grid_name(int stages, int tensor) {
  const std::string sharers = fmt::format("{} process{}", tensor, tensor == 1 ? "" : "es");
  return stages == 1 ? (tensor == 1 ? sharers : sharers + " that share each layer")
                     : fmt::format("{} stages of {}", stages, sharers);
}

std::string layer_range(const Graph& graph, const Partition& partition, int stage) {
  std::string first;
  std::string last;
  for (std::size_t i = 1; i < partition.stage.size(); ++i) {
    if (partition.stage[i] == stage) {
      first = first.empty() ? graph.nodes()[i].name : first;
      last = graph.nodes()[i].name;
    }
  }
  return first == last ? first : first + " … " + last;
}

std::vector<std::vector<std::string>> process_rows(const PlanView& plan) {
  const WeighedCut& cut = plan.chosen();
  std::vector<std::vector<std::string>> rows = {{"process", "layers", "parameters", "activations", "memory", "sends",
                                                 "computes", "exchanges", "waits", "updates"}};
  for (const ProcessPrediction& process : cut.prediction.processes) {
    std::string name = fmt::format("stage {}", process.stage + 1);
    name += cut.tensor > 1 ? fmt::format(", {} of {}", process.position + 1, cut.tensor) : "";
    rows.push_back({name, layer_range(*plan.graph, cut.partition, process.stage),
                    grouped(static_cast<std::uint64_t>(process.parameters)), bytes_short(process.memory.activations),
                    bytes_short(process.memory.total()), bytes_short(process.time.sent_bytes),
                    short_time(process.time.compute), short_time(process.time.exchange),
                    short_time(process.time.waiting()), short_time(process.time.update)});
  }
  return rows;
}

std::vector<std::vector<std::string>> rejected_rows(const PlanView& plan) {
  std::vector<std::vector<std::string>> rows = {{"instead of it", "step", "memory", "why not"}};
  for (std::size_t i = 1; i < plan.cuts.size(); ++i) {
    const WeighedCut& cut = plan.cuts[i];
    const bool sound = cut.problem.empty();
    rows.push_back({grid_name(cut.stages, cut.tensor), sound ? short_time(cut.prediction.step_seconds) : "",
                    sound ? bytes_short(cut.prediction.most_memory) : "", why_not(plan, cut)});
  }
  if (plan.chosen().partition.parts() > 1) {
    const double gain = plan.one_process.step_seconds / plan.chosen().prediction.step_seconds;
    const bool fits = plan.memory_limit == 0 || plan.one_process.most_memory <= plan.memory_limit;
    rows.push_back({"1 process, uncut", short_time(plan.one_process.step_seconds),
                    bytes_short(plan.one_process.most_memory),
                    (gain >= 1 ? fmt::format("the cut is {:.2f} times as fast", gain)
                               : fmt::format("the cut is slower, {:.2f} times as fast", gain)) +
                        (fits ? "" : ", and this does not fit")});
  }
  return rows;
}

std::string cut_counts(const PlanView& plan) {
  std::map<Cut, int> counts;
  for (std::size_t i = 1; i < plan.chosen().partition.cuts.size(); ++i) {
    ++counts[plan.chosen().partition.cuts[i]];
  }
  std::vector<std::string> parts;
  for (const auto& [cut, count] : counts) {
    parts.push_back(cut == Cut::none ? fmt::format("{} whole in each", count)
                                     : fmt::format("{} {}", count, name_of(cut)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

Pairs plan_facts(const PlanView& plan) {
  const WeighedCut& cut = plan.chosen();
  const Prediction& prediction = cut.prediction;
  Pairs facts = {{"Step", short_time(prediction.step_seconds)},
                 {"Samples per second", short_number(static_cast<double>(plan.batch) / prediction.step_seconds)}};
  if (cut.stages > 1) {
    facts.emplace_back("Bubble", percent_text(prediction.bubble));
  }
  facts.emplace_back("Memory of a process", bytes_short(prediction.most_memory));
  return facts;
}

std::string plan_json(const PlanView& plan) {
  const WeighedCut& cut = plan.chosen();
  Json root = {{"model", plan.graph->name()},
               {"stages", cut.stages},
               {"tensor", cut.tensor},
               {"replicas", cut.step.replicas},
               {"micro_batches", cut.step.micro_batches},
               {"stage_at", cut.config.stage_at},
               {"cuts", cut.config.cuts},
               {"step_seconds", cut.prediction.step_seconds},
               {"bubble", cut.prediction.bubble},
               {"memory", cut.prediction.most_memory},
               {"one_process_seconds", plan.one_process.step_seconds},
               {"processes", Json::array()},
               {"rejected", Json::array()}};
  for (const ProcessPrediction& process : cut.prediction.processes) {
    root["processes"].push_back({{"stage", process.stage},
                                 {"position", process.position},
                                 {"layers", layer_range(*plan.graph, cut.partition, process.stage)},
                                 {"parameters", process.parameters},
                                 {"memory",
                                  {{"program", process.memory.program},
                                   {"messages", process.memory.messages},
                                   {"parameters", process.memory.parameters},
                                   {"gradients", process.memory.gradients},
                                   {"optimizer", process.memory.optimizer},
                                   {"activations", process.memory.activations},
                                   {"total", process.memory.total()}}},
                                 {"sent_bytes", process.time.sent_bytes},
                                 {"compute_seconds", process.time.compute},
                                 {"exchange_seconds", process.time.exchange},
                                 {"wait_seconds", process.time.waiting()},
                                 {"update_seconds", process.time.update}});
  }
  for (std::size_t i = 1; i < plan.cuts.size(); ++i) {
    root["rejected"].push_back(json_of(plan.cuts[i]));
  }
  return json_text(root, 2) + "\n";
}

}  // namespace distbelief
