#include "train/run_data.h"

#include "base/error.h"
#include "data/decorators.h"

namespace distbelief {

DataRequest data_request(const RunConfig& config) {
  DataRequest request;
  request.source = config.data;
  request.test_source = config.test_data;
  if (!config.data_dir.empty()) {
    request.folders.emplace_back(config.data_dir);
  }
  request.image_height = config.image_size;
  request.image_width = config.image_size;
  request.label_column = config.label_column;
  request.target = config.label_kind == "classes"  ? TargetKind::classes
                   : config.label_kind == "values" ? TargetKind::values
                                                   : TargetKind::automatic;
  request.features = config.features;
  return request;
}

RunData open_run_data(const RunConfig& config) {
  DataSplits splits = open_data(data_request(config));
  RunData data;
  data.name = splits.name;
  data.description = splits.description;
  if (config.normalize == "auto") {
    data.normalization = measure_normalization(*splits.train);
    if (!data.normalization.mean.empty()) {
      splits.train = normalize(splits.train, data.normalization);
      splits.test = splits.test == nullptr ? nullptr : normalize(splits.test, data.normalization);
    }
  }
  data.train = splits.train;
  data.test = splits.test;
  if (config.validation > 0) {
    ValidationSplit split = split_validation(data.train, config.validation, config.seed);
    data.train = split.train;
    data.validation = split.validation;
  }
  if (config.crop_padding > 0 || config.flip) {
    if (const SampleSpec& spec = data.train->spec(); spec.input.rank() != 3 || spec.sparse || spec.indices) {
      throw InputError(fmt::format("{}: expected images (channels x height x width), but the samples of {} are {}",
                                   config.flip ? "--flip" : "--crop-padding", data.name, spec.input.text()));
    }
    const Augmentation augmentation{.crop_padding = static_cast<int>(config.crop_padding), .flip = config.flip};
    data.train = std::make_shared<Augmented>(data.train, augmentation, config.seed);
  }
  return data;
}

}  // namespace distbelief
