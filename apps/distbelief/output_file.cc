#include "output_file.h"

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace distbelief {

OutputFile::OutputFile(const std::filesystem::path& path) : name_(path.empty() ? "standard output" : path.string()) {
  if (path.empty()) {
    stream_ = stdout;
  } else if (std::filesystem::is_directory(path)) {
    throw FileError(fmt::format("{}: is a folder, expected a file to write", name_));
  } else if (std::filesystem::exists(path) && !std::filesystem::is_regular_file(path)) {
    stream_ = std::fopen(path.c_str(), "w");  // a device must not be replaced by a file
    if (stream_ == nullptr) {
      fail();
    }
  } else {
    file_ = std::make_unique<AtomicFile>(path);
  }
}

OutputFile::~OutputFile() {
  if (stream_ != nullptr && stream_ != stdout) {
    std::fclose(stream_);
  }
}

void OutputFile::fail() const { throw FileError(fmt::format("{}: cannot write: {}", name_, std::strerror(errno))); }

void OutputFile::write(std::string_view text) {
  if (file_ != nullptr) {
    file_->write(text);
  } else if (std::fwrite(text.data(), 1, text.size(), stream_) != text.size()) {
    fail();
  }
}

void OutputFile::commit() {
  if (file_ != nullptr) {
    file_->commit();
  } else if (std::fflush(stream_) != 0) {
    fail();
  }
}

}  // namespace distbelief
