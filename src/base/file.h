#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace distbelief {

/// The whole file. Throws FileError that names the path and the system's reason.
std::string read_file(const std::filesystem::path& path);

/// Writes to a file that appears under its name only when it is whole: written beside as ".NAME.partial", fsync,
/// rename, fsync of the folder. When anything fails (a full disk, no right) it throws FileError naming the path and the
/// reason, removes the partial file and leaves what was there before. Not thread-safe for one path.
class AtomicFile {
 public:
  /// `mode`: who may read and write it, as chmod takes it: 0600 for a secret. 0: as the user's umask has it.
  explicit AtomicFile(std::filesystem::path path, unsigned mode = 0);
  ~AtomicFile();  // an uncommitted file is removed
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void commit();

 private:
  [[noreturn]] void fail(const char* action);
  void put(const char* data, std::size_t size);
  void flush();

  std::filesystem::path path_;
  std::filesystem::path partial_;
  std::string buffer_;
  int fd_ = -1;
};

void write_file_atomically(const std::filesystem::path& path, std::string_view contents, unsigned mode = 0);

/// Adds `data` to the end of an open file of `size` bytes, which then are more; or, when not all of it can be written,
/// throws FileError with `path`, and the file stays as it was.
void append_whole(int fd, std::int64_t& size, std::string_view data, const std::filesystem::path& path);

/// fsync of a folder, so that renames inside it survive a power cut. Throws FileError.
void sync_folder(const std::filesystem::path& folder);

/// A read-only view of a file's bytes (mmap). Throws FileError when it cannot be opened or mapped, or is no regular
/// file; never waits for somebody to write into it. If others make it shorter, see mapped_files.h.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::string name_;  ///< for mapped_files.h
  int place_ = -1;    ///< likewise
};

}  // namespace distbelief
