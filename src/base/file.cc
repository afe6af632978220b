#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/full_disk.h"
#include "base/mapped_files.h"

namespace distbelief {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 16;

std::string reason() { return std::strerror(errno); }

/// Closes on leaving the scope.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) {
      ::close(fd);
    }
  }
};

bool write_all(int fd, const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t written = ::write(fd, data, size);
    if (written < 0) {
      if (errno == EINTR) {
        continue;
      }
      return false;
    }
    data += written;
    size -= static_cast<std::size_t>(written);
  }
  return true;
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) {
    throw FileError(fmt::format("{}: cannot open: {}", path.string(), reason()));
  }
  std::string contents;
  char buffer[kBufferBytes];
  for (;;) {
    const ssize_t got = ::read(file.fd, buffer, sizeof buffer);
    if (got < 0) {
      if (errno == EINTR) {
        continue;
      }
      throw FileError(fmt::format("{}: cannot read: {}", path.string(), reason()));
    }
    if (got == 0) {
      return contents;
    }
    contents.append(buffer, static_cast<std::size_t>(got));
  }
}

AtomicFile::AtomicFile(std::filesystem::path path, unsigned mode) : path_(std::move(path)) {
  partial_ = path_.parent_path() / ("." + path_.filename().string() + ".partial");
  fd_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode == 0 ? 0644 : mode);
  if (fd_ < 0) {
    fail("create");
  }
  if (mode != 0 && ::fchmod(fd_, mode) != 0) {  // a partial file that was left behind keeps the mode it had
    fail("change the mode of");
  }
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) {
    ::close(fd_);
    ::unlink(partial_.c_str());
  }
}

void AtomicFile::fail(const char* action) {
  const std::string why = reason();
  if (fd_ >= 0) {
    ::close(std::exchange(fd_, -1));
    ::unlink(partial_.c_str());
  }
  throw FileError(fmt::format("{}: cannot {}: {}", path_.string(), action, why));
}

void AtomicFile::put(const char* data, std::size_t size) {
  if (disk_is_full(path_)) {
    errno = ENOSPC;
    fail("write");
  }
  if (!write_all(fd_, data, size)) {
    fail("write");
  }
}

void AtomicFile::flush() {
  put(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  const auto* data = reinterpret_cast<const char*>(bytes.data());
  if (buffer_.size() + bytes.size() <= kBufferBytes) {
    buffer_.append(data, bytes.size());
    return;
  }
  flush();
  put(data, bytes.size());
}

void AtomicFile::commit() {
  flush();
  if (::fsync(fd_) != 0) {
    fail("flush");
  }
  if (::close(std::exchange(fd_, -1)) != 0 || ::rename(partial_.c_str(), path_.c_str()) != 0) {
    const std::string why = reason();
    ::unlink(partial_.c_str());
    throw FileError(fmt::format("{}: cannot put in place: {}", path_.string(), why));
  }
  sync_folder(path_.parent_path());
}

void write_file_atomically(const std::filesystem::path& path, std::string_view contents, unsigned mode) {
  AtomicFile file(path, mode);
  file.write(contents);
  file.commit();
}

void sync_folder(const std::filesystem::path& folder) {
  const std::filesystem::path name = folder.empty() ? std::filesystem::path(".") : folder;
  const Descriptor opened{::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (opened.fd < 0 || ::fsync(opened.fd) != 0) {
    throw FileError(fmt::format("{}: cannot flush the folder: {}", name.string(), reason()));
  }
}

MappedFile::MappedFile(const std::filesystem::path& path) : name_(path.string()) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};  // a FIFO would wait for a writer
  struct stat status {};
  if (file.fd < 0 || ::fstat(file.fd, &status) != 0) {
    throw FileError(fmt::format("{}: cannot open: {}", path.string(), reason()));
  }
  if (!S_ISREG(status.st_mode)) {
    throw FileError(fmt::format("{}: not a regular file", path.string()));
  }
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) {
    return;
  }
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (mapped == MAP_FAILED) {
    throw FileError(fmt::format("{}: cannot map: {}", path.string(), reason()));
  }
  data_ = static_cast<const std::byte*>(mapped);
  place_ = remember_mapping(data_, size_, name_.c_str());
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    forget_mapping(place_);
    ::munmap(const_cast<std::byte*>(data_), size_);
  }
}

void append_whole(int fd, std::int64_t& size, std::string_view data, const std::filesystem::path& path) {
  for (std::string_view left = data; !left.empty();) {
    const ssize_t written = ::write(fd, left.data(), left.size());
    if (written >= 0) {
      left.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      const std::string reason = std::strerror(errno);
      [[maybe_unused]] const int ignored = ::ftruncate(fd, size);
      throw FileError(fmt::format("{}: cannot write: {}", path.string(), reason));
    }
  }
  size += static_cast<std::int64_t>(data.size());
}

}  // namespace distbelief
