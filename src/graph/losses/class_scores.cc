#include "graph/losses/class_scores.h"

#include "base/error.h"

namespace distbelief {

void expect_score_per_class(std::string_view loss, const Shape& prediction, std::int64_t classes) {
  if (classes <= 0) {
    throw ShapeError(fmt::format("loss {} needs data with classes, this data has none", loss));
  }
  if (prediction.rank() != 2 || prediction[1] != classes) {
    throw ShapeError(fmt::format("loss {} needs one score for each of {} classes, the model's output is {}", loss,
                                 classes, prediction.text()));
  }
}

void expect_score_per_class_or_one(std::string_view loss, const Shape& prediction, std::int64_t classes) {
  if (classes != 2 || prediction.rank() != 2 || prediction[1] != 1) {
    expect_score_per_class(loss, prediction, classes);
  }
}

void expect_output_per_target(std::string_view loss, const Shape& prediction, std::int64_t targets) {
  if (targets <= 0) {
    throw ShapeError(fmt::format("loss {} needs data with float targets, this data has none", loss));
  }
  if (prediction.sample().elements() != targets) {
    throw ShapeError(fmt::format("loss {} needs one output for each of {} targets, the model's output is {}", loss,
                                 targets, prediction.text()));
  }
}

}  // namespace distbelief
