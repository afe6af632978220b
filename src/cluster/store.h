#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace distbelief {

/// Where a coordinator writes down what its successor must know. Names are those of files. One thread.
class Store {
 public:
  virtual ~Store() = default;
  /// Nothing when it was never written, or removed. Throws FileError.
  virtual std::optional<std::string> read(std::string_view name) = 0;
  /// What the contents must outlive: the machine, or only the coordinator. Who would start it again dies with the machine,
  /// and waiting for the disk at each join would make the start of a large job slow.
  enum class Outlives : std::uint8_t { the_machine, the_process };
  /// Whole when it returns; else throws FileError, and what was there before is still there.
  virtual void write(std::string_view name, std::string_view contents, Outlives outlives) = 0;
  virtual void remove(std::string_view name) = 0;
};

/// In a folder, as files that only their owner can read: for a coordinator that is started again on the same machine,
/// or on another that sees the folder.
class FileStore : public Store {
 public:
  explicit FileStore(std::filesystem::path folder) : folder_(std::move(folder)) {}
  std::optional<std::string> read(std::string_view name) override;
  void write(std::string_view name, std::string_view contents, Outlives outlives) override;
  void remove(std::string_view name) override;

 private:
  const std::filesystem::path folder_;
};

}  // namespace distbelief
