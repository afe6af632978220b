#include "cluster/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "transport/socket/file_descriptor.h"

namespace distbelief {

std::optional<std::string> FileStore::read(std::string_view name) {
  const std::filesystem::path path = folder_ / name;
  return std::filesystem::exists(path) ? std::optional(read_file(path)) : std::nullopt;
}

void FileStore::write(std::string_view name, std::string_view contents, Outlives outlives) {
  const std::filesystem::path path = folder_ / name;
  if (outlives == Outlives::the_machine) {
    write_file_atomically(path, contents, 0600);
    return;
  }
  const std::filesystem::path beside = folder_ / fmt::format(".{}.partial", name);
  bool written = false;
  {
    const FileDescriptor file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    written = file.get() >= 0 && ::write(file.get(), contents.data(), contents.size()) == std::ssize(contents);
  }
  if (!written || ::rename(beside.c_str(), path.c_str()) != 0) {
    const std::string why = std::strerror(errno);
    ::unlink(beside.c_str());
    throw FileError(fmt::format("{}: cannot write: {}", path.string(), why));
  }
}

void FileStore::remove(std::string_view name) {
  std::error_code ignored;
  std::filesystem::remove(folder_ / name, ignored);
}

}  // namespace distbelief
