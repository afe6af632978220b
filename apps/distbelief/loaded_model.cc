#include "loaded_model.h"

#include <algorithm>

#include "base/error.h"
#include "metrics/machine.h"
#include "train/trainer.h"

namespace distbelief {
namespace {

std::optional<RunConfig> run_around(const std::filesystem::path& path) {
  const std::filesystem::path folder = std::filesystem::is_directory(path) ? path : path.parent_path();
  if (!std::filesystem::exists(folder / "run.yaml")) {
    return std::nullopt;
  }
  return config_of_run(folder);
}

}  // namespace

void expect_model(const std::string& path) {
  if (!std::filesystem::exists(path)) {
    throw InputError(
        fmt::format("model '{}': no such file or folder; expected a model.safetensors or the folder of a run", path));
  }
}

LoadedModel::LoadedModel(const std::string& path, const ComputeOptions& computing)
    : model_((expect_model(path), read_model(path))), run_(run_around(path)) {
  ReplicaOptions options;
  options.threads = computing.threads > 0 ? computing.threads : std::max(1, this_machine().threads);
  options.mode = faster_thread_mode(model_.graph, computing.batch, options.threads);
  replica_ = std::make_unique<Replica>(model_.graph, *model_.table, options);
  std::ranges::copy(model_.values.as<float>(), replica_->values().begin());
  model_.values = Buffer();  // the replica has its own
}

std::string LoadedModel::class_name(std::size_t number) const {
  return number < card().class_names.size() ? card().class_names[number] : std::to_string(number);
}

void class_scores(const Loss& loss, std::span<const float> row, std::vector<float>& out) {
  out.assign(row.begin(), row.end());
  loss.to_probabilities(out);
  if (out.size() == 1) {
    const float one = out[0];
    const bool probability = loss.type() != "hinge";
    out = {probability ? 1 - one : -one, one};
  }
}

}  // namespace distbelief
