#include "base/full_disk.h"

#include <algorithm>
#include <mutex>

namespace distbelief {
namespace {

struct FullDisk {
  std::mutex mutex;
  std::filesystem::path folder;  // these two: guarded by mutex
  Clock::time_point until = {};
};

FullDisk& full_disk() {
  static FullDisk disk;
  return disk;
}

}  // namespace

void set_disk_full(const std::filesystem::path& folder, Clock::time_point until) {
  FullDisk& disk = full_disk();
  const std::scoped_lock lock(disk.mutex);
  disk.folder = std::filesystem::absolute(folder).lexically_normal();
  disk.until = until;
}

bool disk_is_full(const std::filesystem::path& file) {
  FullDisk& disk = full_disk();
  const std::scoped_lock lock(disk.mutex);
  if (Clock::now() >= disk.until) {
    return false;
  }
  const std::filesystem::path path = std::filesystem::absolute(file).lexically_normal();
  return std::mismatch(disk.folder.begin(), disk.folder.end(), path.begin(), path.end()).first == disk.folder.end();
}

}  // namespace distbelief
