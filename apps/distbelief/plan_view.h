#pragma once

#include <string>
#include <vector>

#include "metrics/page.h"
#include "train/model_cut.h"

namespace distbelief {

/// A plan as it is shown: the cut that was chosen, and what it was chosen from.
struct PlanView {
  const Graph* graph = nullptr;       ///< borrowed
  std::vector<WeighedCut> cuts = {};  ///< the chosen one first
  Prediction one_process = {};        ///< the same step without a cut
  std::int64_t memory_limit = 0;      ///< 0: none
  std::int64_t batch = 0;             ///< of all copies together
  std::string costs = {};             ///< where the costs of layers come from
  std::string links = {};             ///< likewise
  std::vector<std::string> notes = {};

  const WeighedCut& chosen() const { return cuts.front(); }
};

/// "2 stages of 2 processes".
std::string grid_name(int stages, int tensor);
/// The layers of a stage: "conv1 … pool2".
std::string layer_range(const Graph& graph, const Partition& partition, int stage);
/// What each process does: a heading and a row each. Columns from the third on are numbers.
std::vector<std::vector<std::string>> process_rows(const PlanView& plan);
/// The cuts that were not chosen, and why; the first row is the heading. Of one process without a cut in the last.
std::vector<std::vector<std::string>> rejected_rows(const PlanView& plan);
/// What is predicted of the whole, in few words.
Pairs plan_facts(const PlanView& plan);
/// How layers are cut: "12 by outputs, 3 whole".
std::string cut_counts(const PlanView& plan);

/// A page that needs nothing but itself.
std::string plan_html(const PlanView& plan);
std::string plan_json(const PlanView& plan);

}  // namespace distbelief
