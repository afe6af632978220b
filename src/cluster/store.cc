#include "cluster/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "transport/socket/file_descriptor.h"

namespace distbelief {
namespace {

constexpr std::string_view kTermName = "coordinator.json";

/// As a whole or not at all, but perhaps not on the disk yet. May take long all the same: to put a file in the place of
/// another, some file systems wait until that one is on the disk, behind all that others write. Throws FileError.
void put_in_place(const std::filesystem::path& path, const std::filesystem::path& beside, std::string_view contents) {
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

}  // namespace

std::uint64_t FileStore::begin_term() {
  std::uint64_t term = 0;
  if (const auto text = read(kTermName)) {
    try {
      term = parse_json(*text).at("term").get<std::uint64_t>();
    } catch (const JsonError& error) {
      throw FileError(fmt::format("{}: {}", kTermName, error.what()));
    }
  }
  ++term;
  (void)write(kTermName, json_text(Json({{"term", term}})) + "\n", Outlives::the_machine);
  return term;
}

std::optional<std::string> FileStore::read(std::string_view name) {
  const std::filesystem::path path = folder_ / name;
  return std::filesystem::exists(path) ? std::optional(read_file(path)) : std::nullopt;
}

bool FileStore::write(std::string_view name, std::string_view contents, Outlives outlives) {
  const std::filesystem::path path = folder_ / name;
  if (outlives == Outlives::the_machine) {
    write_file_atomically(path, contents, 0600);
    return true;
  }
  if (unheard_ && disk_.wait(std::chrono::milliseconds(0))) {
    const Unheard before = *std::exchange(unheard_, std::nullopt);
    if (is_put_ && before.name == name && before.contents == contents) {
      return true;  // a disk may always need longer than that
    }
  }
  const std::filesystem::path beside = folder_ / fmt::format(".{}.partial", name);
  const auto put = [this, path, beside, bytes = std::string(contents)] {
    is_put_ = false;
    put_in_place(path, beside, bytes);
    is_put_ = true;
  };
  const bool is_under_way = unheard_.has_value();
  if (is_under_way || !disk_.run(put, patience_)) {
    if (!is_under_way) {
      unheard_ = Unheard{.name = std::string(name), .contents = std::string(contents)};
    }
    throw FileError(
        fmt::format("{}: cannot write: the disk has not answered for {} ms", path.string(), patience_.count()));
  }
  return true;
}

void FileStore::remove(std::string_view name) {
  while (!disk_.wait(std::chrono::hours(1))) {
    // What is being written would be there again. Who uses this ends now, and would wait for it then.
  }
  std::error_code ignored;
  std::filesystem::remove(folder_ / name, ignored);
}

}  // namespace distbelief
