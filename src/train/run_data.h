#pragma once

#include <memory>
#include <string>

#include "config/run_config.h"
#include "data/open.h"

namespace distbelief {

/// The data of a run, ready for the engine: normalised by what the training part measures, augmented, split.
struct RunData {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> validation;  ///< null without --validation
  std::shared_ptr<const Dataset> test;        ///< null when there is none
  Normalization normalization;                ///< what new samples need before the model sees them
  std::string name;
  std::string description;
};

/// The part of a configuration that says which data.
DataRequest data_request(const RunConfig& config);

/// Throws InputError or FileError.
RunData open_run_data(const RunConfig& config);

}  // namespace distbelief
