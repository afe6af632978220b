#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "base/file.h"

namespace distbelief {

/// Where results go: standard output, a file that appears only when it is whole, or a device or pipe as it is.
class OutputFile {
 public:
  /// An empty path is standard output. Throws FileError.
  explicit OutputFile(const std::filesystem::path& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Throws FileError, also for what an earlier write() kept in memory.
  void write(std::string_view text);
  void commit();

 private:
  [[noreturn]] void fail() const;

  std::string name_;
  std::unique_ptr<AtomicFile> file_;
  std::FILE* stream_ = nullptr;
};

}  // namespace distbelief
