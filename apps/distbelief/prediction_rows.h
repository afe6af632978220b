#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace distbelief {

struct RankedClass {
  std::size_t number = 0;
  std::string name;
  float score = 0;  ///< a probability, unless the model gives none
};

/// What a model says about one sample: classes, the likeliest first, or values.
struct SamplePrediction {
  std::string sample;
  std::vector<RankedClass> classes;
  std::span<const float> values;  ///< when there are no classes
};

/// How predictions are written: one text before, one for each, one after.
class PredictionRows {
 public:
  virtual ~PredictionRows() = default;
  /// `first` shows what all rows look like.
  virtual std::string begin(const SamplePrediction& first) = 0;
  virtual std::string row(const SamplePrediction& prediction) = 0;
  virtual std::string end() = 0;
};

/// `format` is "csv" or "json"; `score` is what a class's number is called: "probability" or "score".
std::unique_ptr<PredictionRows> make_prediction_rows(std::string_view format, std::string score);

}  // namespace distbelief
