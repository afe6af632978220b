#include "metrics/metrics_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace distbelief {
namespace {

std::string line_of(const MetricsRow& row) {
  Json json;
  json["step"] = row.step;
  json["epoch"] = row.epoch;
  json["time"] = row.time;
  for (const auto& [name, value] : row.values) {
    json[name] = value;  // what is not finite is written as null
  }
  return json_text(json) + "\n";
}

std::optional<MetricsRow> parse_row(std::string_view line) {
  const Json json = try_parse_json(line);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) {
    return std::nullopt;
  }
  MetricsRow row;
  for (const auto& [name, value] : json.items()) {
    if (name == "step") {
      row.step = value.get<std::int64_t>();
      continue;
    }
    if (!value.is_number() && !value.is_null()) {
      return std::nullopt;
    }
    const double number = value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
    if (name == "epoch") {
      row.epoch = number;
    } else if (name == "time") {
      row.time = number;
    } else {
      row.values.emplace_back(name, number);
    }
  }
  return row;
}

/// Calls visit(line number, line without its end) for each line that has its end.
template <typename Visit>
void for_each_line(std::string_view text, Visit visit) {
  int number = 0;
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    visit(++number, text.substr(0, end));
    text.remove_prefix(end + 1);
  }
}

/// The first `rows` rows, or as many as there are; `rows` becomes their number.
std::string first_rows(const std::filesystem::path& path, std::int64_t& rows) {
  std::string kept;
  std::int64_t count = 0;
  for_each_line(read_file(path), [&](int number, std::string_view line) {
    if (count == rows) {
      return;
    }
    if (!parse_row(line)) {
      throw FileError(fmt::format("{}:{}: expected a JSON object with a step and numbers", path.string(), number));
    }
    kept.append(line).push_back('\n');
    ++count;
  });
  rows = count;
  return kept;
}

}  // namespace

std::optional<double> MetricsRow::value(std::string_view name) const {
  for (const auto& [key, number] : values) {
    if (key == name) {
      return number;
    }
  }
  return std::nullopt;
}

MetricsLog::MetricsLog(const std::filesystem::path& path, std::int64_t rows) : path_(path) {
  const bool goes_on = rows > 0 && std::filesystem::exists(path);
  rows_ = goes_on ? rows : 0;
  const std::string kept = goes_on ? first_rows(path, rows_) : std::string();
  try {
    write_file_atomically(path, kept);
  } catch (const FileError&) {  // a full disk has no room for another: then what is too much is cut off this one
    if (::truncate(path.c_str(), static_cast<off_t>(kept.size())) != 0) {
      throw;
    }
  }
  size_ = static_cast<std::int64_t>(kept.size());
  fd_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd_ < 0) {
    throw FileError(fmt::format("{}: cannot open: {}", path.string(), std::strerror(errno)));
  }
}

MetricsLog::MetricsLog(MetricsLog&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_), rows_(other.rows_) {}

MetricsLog::~MetricsLog() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

void MetricsLog::append(const MetricsRow& row) {
  append_whole(fd_, size_, line_of(row), path_);  // if a part stays after all, it has no end, and readers pass over it
  rows_ += 1;
}

std::vector<MetricsRow> read_metrics(const std::filesystem::path& path) {
  std::vector<MetricsRow> rows;
  for_each_line(read_file(path), [&](int number, std::string_view line) {
    auto row = parse_row(line);
    if (!row) {
      throw FileError(fmt::format("{}:{}: expected a JSON object with a step and numbers", path.string(), number));
    }
    rows.push_back(std::move(*row));
  });
  return rows;
}

}  // namespace distbelief
