#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace distbelief {

/// A TensorBoard event file, "events.out.tfevents.SECONDS.HOST.PID", with scalars. The two protobuf messages it needs
/// (Event and Summary) are small and frozen, so they are coded by hand. Each call is written through at once. One
/// thread. Throws FileError when the disk does not take a record.
class EventFile {
 public:
  /// `first_step` is where this part of the run begins: TensorBoard forgets later points of earlier files.
  EventFile(const std::filesystem::path& folder, std::string_view host, double wall_time, std::int64_t first_step);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  void scalars(std::int64_t step, double wall_time, std::span<const std::pair<std::string, double>> values);
  const std::filesystem::path& path() const { return path_; }

 private:
  /// All of it, after what has not been written of the head, or nothing.
  void write(const std::string& records);

  std::filesystem::path path_;
  int fd_ = -1;
  std::int64_t size_ = 0;
  std::string head_ = {};  ///< of the file, as long as it could not be written
};

}  // namespace distbelief
