#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "metrics/chart.h"
#include "metrics/counters.h"
#include "metrics/machine.h"
#include "metrics/metrics_log.h"

namespace distbelief {

/// One row of the report's table of layers.
struct ReportLayer {
  std::string name;
  std::string type;
  std::string output;  ///< its shape
  std::uint64_t parameters = 0;
  double flops = 0;  ///< forward, for one sample; the column is left out when all are 0
};

/// What report.html is made from. What is unknown is left out of the page.
struct ReportData {
  std::string model;
  std::string data;
  std::string algorithm;
  std::string finished;  ///< when, as people write it
  std::int64_t epochs = 0;
  std::int64_t workers = 1;
  std::int64_t threads = 1;
  std::optional<double> test_accuracy;
  std::optional<double> test_loss;
  std::optional<double> train_loss;
  double train_seconds = 0;
  double samples_per_second = 0;
  std::uint64_t parameters = 0;
  std::uint64_t peak_memory_bytes = 0;
  SampleAudit samples;
  std::vector<MetricsRow> history;
  std::vector<std::pair<std::string, std::string>> configuration;
  std::vector<ReportLayer> layers;
  Machine machine;
};

/// Writes one HTML file that needs nothing else: no network, and no scripts except for values under the pointer.
/// Appears whole or not at all. Throws FileError.
void write_report(const std::filesystem::path& path, const ReportData& report);

/// The page itself.
std::string report_html(const ReportData& report);

/// The curves that a history has, by the names its rows use: train_loss, validation_loss, test_loss, train_accuracy,
/// validation_accuracy, test_accuracy, samples_per_second, learning_rate.
std::vector<Chart> charts_of(const std::vector<MetricsRow>& history);

/// "60,000 leased, 60,000 applied, 0 dropped, 0 lost, 0 twice".
std::string audit_text(const SampleAudit& samples);

}  // namespace distbelief
