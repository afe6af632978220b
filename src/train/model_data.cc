#include "train/model_data.h"

#include "base/check.h"
#include "base/error.h"
#include "data/decorators.h"
#include "data/formats/image_folder.h"
#include "data/open.h"

namespace distbelief {
namespace {

/// Shows what the training data looked like; it has no samples itself.
class TrainedOn final : public Dataset {
 public:
  explicit TrainedOn(const ModelCard& card) : card_(card) {}
  const SampleSpec& spec() const override { return card_.model.data; }
  std::uint64_t size() const override { return 0; }
  void read(std::span<const std::uint64_t> /*ids*/, std::uint64_t /*epoch*/, Batch& /*batch*/) const override {
    check(false, "only looks are known of the data a model was trained on");
  }
  std::vector<std::string> class_names() const override { return card_.class_names; }

 private:
  const ModelCard& card_;
};

bool takes_images(const ModelCard& card) {
  const Shape& input = card.model.data.input;
  return input.rank() == 3 && (input[0] == 1 || input[0] == 3) && !card.model.data.indices;
}

std::string samples_text(const SampleSpec& spec) {
  const char* kind = spec.sparse ? "sparse rows of " : spec.indices ? "integers of " : "";
  return fmt::format("{}{}", kind, spec.input.text());
}

std::shared_ptr<const Dataset> fitted(std::shared_ptr<const Dataset> data, const ModelCard& card,
                                      const std::string& source, bool labelled) {
  const SampleSpec& has = data->spec();
  const SampleSpec& wants = card.model.data;
  if (has.input != wants.input || has.sparse != wants.sparse || has.indices != wants.indices) {
    throw ShapeError(fmt::format("data '{}': samples are {}, but the model takes {}", source, samples_text(has),
                                 samples_text(wants)));
  }
  if (labelled && (has.classes != wants.classes || has.targets != wants.targets)) {
    throw ShapeError(fmt::format("data '{}': {} classes and {} values, but the model was trained for {} and {}", source,
                                 has.classes, has.targets, wants.classes, wants.targets));
  }
  return card.normalization.mean.empty() ? data : normalize(std::move(data), card.normalization);
}

}  // namespace

ModelData open_model_data(const ModelCard& card, DataRequest request) {
  if (takes_images(card) && is_table_file(request.source)) {
    throw ShapeError(
        fmt::format("data '{}': a table, but the model takes images of {}: expected image files, a folder "
                    "of them, or data of that shape",
                    request.source, card.model.data.input.text()));
  }
  const TrainedOn like(card);
  request.like = &like;
  const SampleSpec& spec = card.model.data;
  request.classes = spec.classes;
  request.target = spec.classes > 0 ? TargetKind::classes : TargetKind::values;
  if (spec.sparse) {
    request.features = spec.input.elements();
  }
  DataSplits splits = open_data(request);
  const std::string source = request.source;
  return {fitted(splits.train, card, source, request.labelled),
          splits.test == nullptr ? nullptr : fitted(splits.test, card, source, request.labelled), splits.name};
}

std::shared_ptr<const Dataset> open_model_images(const ModelCard& card,
                                                 const std::vector<std::filesystem::path>& files) {
  const Shape& input = card.model.data.input;
  if (!takes_images(card)) {
    throw ShapeError(
        fmt::format("{}: an image, but the model takes {}", files.front().string(), samples_text(card.model.data)));
  }
  return fitted(open_image_files(files, {input[1], input[2], input[0]}), card, files.front().string(), false);
}

}  // namespace distbelief
