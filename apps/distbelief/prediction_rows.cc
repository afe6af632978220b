#include "prediction_rows.h"

#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "base/json.h"
#include "metrics/format.h"

namespace distbelief {
namespace {

/// In quotes when it has signs that a reader of CSV would take for its own.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) {
    return text;
  }
  std::string quoted = "\"";
  for (const char c : text) {
    quoted += c == '"' ? "\"\"" : std::string(1, c);
  }
  return quoted + '"';
}

/// With the fewest digits that are this float.
std::string number_text(float value) { return fmt::format("{}", static_cast<float>(unsigned_nan(value))); }

/// The double with the fewest digits that is this float.
double shortest(float value) { return std::strtod(fmt::format("{}", value).c_str(), nullptr); }

class CsvRows final : public PredictionRows {
 public:
  explicit CsvRows(std::string score) : score_(std::move(score)) {}

  std::string begin(const SamplePrediction& first) override {
    std::string line = "sample";
    for (std::size_t i = 0; i < first.classes.size(); ++i) {
      const std::string rank = i == 0 ? "" : "_" + std::to_string(i + 1);
      line += fmt::format(",class{0},name{0},{1}{0}", rank, score_);
    }
    for (std::size_t i = 0; i < first.values.size(); ++i) {
      line += first.values.size() == 1 ? ",value" : fmt::format(",value_{}", i + 1);
    }
    return line + "\n";
  }
  std::string row(const SamplePrediction& prediction) override {
    std::string line = csv_field(prediction.sample);
    for (const RankedClass& ranked : prediction.classes) {
      line += fmt::format(",{},{},{}", ranked.number, csv_field(ranked.name), number_text(ranked.score));
    }
    for (const float value : prediction.values) {
      line += "," + number_text(value);
    }
    return line + "\n";
  }
  std::string end() override { return ""; }

 private:
  std::string score_;
};

class JsonRows final : public PredictionRows {
 public:
  explicit JsonRows(std::string score) : score_(std::move(score)) {}

  std::string begin(const SamplePrediction& /*first*/) override { return "["; }
  std::string row(const SamplePrediction& prediction) override {
    Json object = {{"sample", prediction.sample}};
    if (!prediction.classes.empty()) {
      object.update(of_class(prediction.classes.front()));
    }
    if (prediction.classes.size() > 1) {
      object["top"] = Json::array();
      for (const RankedClass& ranked : prediction.classes) {
        object["top"].push_back(of_class(ranked));
      }
    }
    if (!prediction.values.empty()) {
      object["values"] = Json::array();
      for (const float value : prediction.values) {
        object["values"].push_back(shortest(value));
      }
    }
    const char* comma = std::exchange(first_, false) ? "\n" : ",\n";
    return comma + json_text(object);
  }
  std::string end() override { return first_ ? "[]\n" : "\n]\n"; }

 private:
  Json of_class(const RankedClass& ranked) const {
    return {{"class", ranked.number}, {"name", ranked.name}, {score_, shortest(ranked.score)}};
  }

  std::string score_;
  bool first_ = true;
};

}  // namespace

std::unique_ptr<PredictionRows> make_prediction_rows(std::string_view format, std::string score) {
  if (format == "json") {
    return std::make_unique<JsonRows>(std::move(score));
  }
  return std::make_unique<CsvRows>(std::move(score));
}

}  // namespace distbelief
