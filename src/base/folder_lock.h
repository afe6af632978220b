#pragma once

#include <filesystem>

namespace distbelief {

/// That no other process works in a folder: a lock of the kernel's on the folder itself, which leaves nothing behind
/// and ends with the process, however that ends. Processes that this one starts do not have it.
class FolderLock {
 public:
  /// Throws InputError, naming the folder, when another has it, and FileError when there is no such folder. On file
  /// systems that lock no folders (some of a network) nobody is kept out.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace distbelief
