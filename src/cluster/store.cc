#include "cluster/store.h"

#include "base/file.h"

namespace distbelief {

std::optional<std::string> FileStore::read(std::string_view name) {
  const std::filesystem::path path = folder_ / name;
  return std::filesystem::exists(path) ? std::optional(read_file(path)) : std::nullopt;
}

void FileStore::write(std::string_view name, std::string_view contents) {
  write_file_atomically(folder_ / name, contents, 0600);
}

void FileStore::remove(std::string_view name) {
  std::error_code ignored;
  std::filesystem::remove(folder_ / name, ignored);
}

}  // namespace distbelief
