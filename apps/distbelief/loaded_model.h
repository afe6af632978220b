#pragma once

#include <memory>
#include <optional>
#include <string>

#include "config/run_config.h"
#include "data_options.h"
#include "exec/replica.h"
#include "train/model_data.h"
#include "train/trained_model.h"

namespace distbelief {

/// A trained model that is ready to compute. Not movable: the replica looks at the table.
class LoadedModel {
 public:
  /// From a run's folder or a model.safetensors. Throws FileError.
  LoadedModel(const std::string& path, const ComputeOptions& computing);
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  const ModelCard& card() const { return model_.card; }
  const Loss& loss() const { return model_.graph.loss(); }
  Replica& replica() { return *replica_; }
  /// The configuration of its run, when the model is still in the run's folder.
  const std::optional<RunConfig>& run() const { return run_; }
  bool has_classes() const { return loss().wants_classes(); }
  /// A class's name; its number when it has none.
  std::string class_name(std::size_t number) const;

 private:
  TrainedModel model_;
  std::optional<RunConfig> run_;
  std::unique_ptr<Replica> replica_;
};

/// Scores of one row as one number for each class: a single score for two classes becomes two. Probabilities, unless
/// the loss gives none (hinge): then scores, of which the largest wins as well.
void class_scores(const Loss& loss, std::span<const float> row, std::vector<float>& out);

/// Throws InputError that names the path when there is no model there; says what a model is.
void expect_model(const std::string& path);

}  // namespace distbelief
