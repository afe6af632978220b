#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace distbelief {

/// What runs are compared by: how good they are on data that is not trained on.
struct Measure {
  bool is_accuracy = true;       ///< otherwise a loss, and less is better
  bool on_validation = false;    ///< otherwise on test data
  std::optional<double> target = {};  ///< what is good enough

  bool reaches(double score, double wanted) const { return is_accuracy ? score >= wanted : score <= wanted; }
  /// "test accuracy".
  std::string name() const;
  /// Of a score: "88.21 %", "0.3512".
  std::string text(double score) const;
  /// Of the target, if there is one, as it was given: "88 %".
  std::string target_text() const;
};

/// One run of a comparison, as its folder tells of it.
struct ComparedRun {
  struct Point {
    double seconds = 0;  ///< of training
    double samples = 0;  ///< that gradients were computed of
    double score = 0;
  };
  std::string label;
  std::string algorithm;
  std::string status = "waiting";  ///< or as summary.json has it
  std::string problem;
  int workers = 0;
  int servers = 0;
  int threads = 0;            ///< of each worker
  std::vector<Point> points;  ///< one an epoch; of L-BFGS one an iteration
  double seconds = 0;
  double samples_per_second = 0;
  std::optional<double> bytes_per_sample = {};  ///< that processes sent each other; nothing: there is one process
  std::optional<double> staleness_mean = {};    ///< these two: of runs through parameter servers
  std::optional<double> staleness_max = {};

  /// Nothing is to be done any more. What was interrupted or lost goes on.
  bool is_over() const { return status == "finished" || status == "stopped early" || status == "diverged"; }
  /// The best score, and the first that is good enough.
  const Point* best(const Measure& measure) const;
  const Point* reached(const Measure& measure) const;
};

/// What there is in the run's folder: nothing yet, some epochs, or all. Throws FileError for a file that is damaged.
ComparedRun read_compared_run(const std::filesystem::path& folder, const std::string& label, const Measure& measure);

}  // namespace distbelief
