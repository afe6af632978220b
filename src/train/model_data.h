#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/open.h"
#include "train/trained_model.h"

namespace distbelief {

/// Data for a trained model: in the shapes and classes of what it was trained on, and normalised as that was.
struct ModelData {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> test;  ///< null when the source has no test part
  std::string name;
};

/// Images are brought to the model's size, word labels are its class names. Throws ShapeError, naming both, when
/// samples do not fit the model; otherwise as open_data().
ModelData open_model_data(const ModelCard& card, DataRequest request);

/// The same for image files, without labels.
std::shared_ptr<const Dataset> open_model_images(const ModelCard& card,
                                                 const std::vector<std::filesystem::path>& files);

}  // namespace distbelief
