#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "transport/socket/file_descriptor.h"

namespace distbelief {

/// RUN/logs/worker-1.log.
std::filesystem::path process_log_path(const std::filesystem::path& run_folder, std::string_view role, int rank);

/// What a process of a job writes down: lines with the time of day in microseconds, UTC, each written at once and in
/// one piece. Where it cannot be written nothing is: nobody stops training for that. Thread-safe.
class ProcessLog {
 public:
  /// Makes the file's folder, but not the one that is in: a host that does not see the run makes none of its own.
  explicit ProcessLog(const std::filesystem::path& file);
  explicit ProcessLog(FileDescriptor file) : file_(std::move(file)) {}
  void line(std::string_view text) const;
  /// From now on this process's standard output and error go there too.
  void take_output() const;

 private:
  FileDescriptor file_;
};

/// What others than the program itself made a process print in the last five lines of its log, and why it says it ends:
/// indented, to be shown under the message that it died.
std::vector<std::string> last_words(const std::filesystem::path& log);

}  // namespace distbelief
