#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace distbelief {

/// One line of metrics.jsonl: {"step":12,"epoch":0.5,"time":3.25,"train_loss":0.7}.
struct MetricsRow {
  std::int64_t step = 0;
  double epoch = 0;  ///< epochs done, with their fraction
  double time = 0;   ///< seconds of training, of all parts of a resumed run
  std::vector<std::pair<std::string, double>> values;

  std::optional<double> value(std::string_view name) const;
};

/// Appends rows to a file of JSON lines, each on the disk's side of the program when append() returns, so that a killed
/// run keeps them. A number that is not finite becomes null. One thread.
class MetricsLog {
 public:
  /// Begins an empty file. Throws FileError.
  static MetricsLog create(const std::filesystem::path& path) { return MetricsLog(path, 0); }
  /// Goes on with a file of an earlier part of the run: what comes after its first `rows` rows is first removed, in one
  /// stroke. A missing file is begun.
  static MetricsLog resume(const std::filesystem::path& path, std::int64_t rows) { return MetricsLog(path, rows); }
  ~MetricsLog();
  MetricsLog(MetricsLog&& other) noexcept;
  MetricsLog& operator=(MetricsLog&&) = delete;

  /// Throws FileError when the row cannot be written; no part of it is then in the file.
  void append(const MetricsRow& row);
  /// Rows in the file. A checkpoint keeps this number, for resume().
  std::int64_t rows() const { return rows_; }

 private:
  MetricsLog(const std::filesystem::path& path, std::int64_t rows);

  std::filesystem::path path_;
  int fd_ = -1;
  std::int64_t size_ = 0;
  std::int64_t rows_ = 0;
};

/// All rows of a file, in order; null is NaN. A last line without its end is left out, for a run was killed there.
/// Throws FileError with file and line when another line is no row.
std::vector<MetricsRow> read_metrics(const std::filesystem::path& path);

}  // namespace distbelief
