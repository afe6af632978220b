#include "train/process_log.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string_view>

#include "cluster/child_process.h"

namespace distbelief {
namespace {

constexpr int kLastLines = 5;
constexpr std::size_t kTimeBytes = std::string_view("2026-01-31T12:00:00.000000Z ").size();

/// What a process writes down as it goes; not why it ends, nor what others made it print, such as a failed check.
bool is_routine(std::string_view line) {
  const bool has_time = line.size() > kTimeBytes && line[4] == '-' && line[10] == 'T' && line[kTimeBytes - 2] == 'Z';
  return has_time && !line.substr(kTimeBytes).starts_with("ends: ");
}

}  // namespace

std::filesystem::path process_log_path(const std::filesystem::path& run_folder, std::string_view role, int rank) {
  return run_folder / "logs" / fmt::format("{}-{}.log", role, rank);
}

ProcessLog::ProcessLog(const std::filesystem::path& file) {
  std::error_code ignored;
  std::filesystem::create_directory(file.parent_path(), ignored);
  file_ = FileDescriptor(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
}

void ProcessLog::line(std::string_view text) const {
  const auto now = std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
  const auto second = std::chrono::floor<std::chrono::seconds>(now);
  const std::string line =
      fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z {}\n", fmt::gmtime(std::chrono::system_clock::to_time_t(second)),
                  (now - second).count(), text);
  if (file_) {
    static_cast<void>(!::write(file_.get(), line.data(), line.size()));
  }
}

void ProcessLog::take_output() const {
  if (file_) {
    std::fflush(nullptr);
    static_cast<void>(::dup2(file_.get(), STDOUT_FILENO));
    static_cast<void>(::dup2(file_.get(), STDERR_FILENO));
  }
}

std::vector<std::string> last_words(const std::filesystem::path& log) {
  std::vector<std::string> lines;
  const std::string text = last_lines(log, kLastLines);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    if (!is_routine(line)) {
      lines.push_back("    " + line);
    }
    begin = end + 1;
  }
  return lines;
}

}  // namespace distbelief
