#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/side_thread.h"

namespace distbelief {

/// Where a coordinator writes down what its successor must know. Names are those of files. One thread, but for
/// may_act().
class Store {
 public:
  virtual ~Store() = default;
  /// The term of the coordinator that now begins: above that of every one before, durable when it returns, and no
  /// other's ever. Once. Throws FileError.
  virtual std::uint64_t begin_term() = 0;
  /// Nothing when it was never written, or removed. Throws FileError.
  virtual std::optional<std::string> read(std::string_view name) = 0;
  /// What the contents must outlive: the machine, or only the coordinator. Who would start it again dies with the
  /// machine, and waiting for the disk at each join would make the start of a large job slow.
  enum class Outlives : std::uint8_t { the_machine, the_process };
  /// Whole when it returns true. False: it is not written, and this coordinator must not act any more, as may_act()
  /// says. Throws FileError when it is not written, or not yet, what was there before may still be there, and nobody
  /// else may act: the coordinator goes on, and tries again.
  [[nodiscard]] virtual bool write(std::string_view name, std::string_view contents, Outlives outlives) = 0;
  virtual void remove(std::string_view name) = 0;
  /// How the coordinator of this term is reached (see job_file.h), for those that lost the one before.
  virtual void publish(const std::string& job_file) = 0;
  /// False when another may be, or become, the coordinator: this one stops at once, and for good. Never waits; any
  /// thread.
  virtual bool may_act() const = 0;
  /// For people, when it may not.
  virtual std::string why_not() const = 0;
  /// For people: why nothing could be written now, as far as is known. Never waits.
  virtual std::string trouble() const { return {}; }
};

/// In a folder, as files that only their owner can read: for a coordinator that is started again on the same machine,
/// or on another that sees the folder. Whoever starts one knows that the one before is dead. A disk that is busy, or
/// away, is waited for by write() only as long as `patience` holds, but for what must outlive the machine.
class FileStore : public Store {
 public:
  /// Far below JobRules::gap_limit, so that the coordinator does not think that it was stopped.
  static constexpr std::chrono::milliseconds kPatience{300};
  explicit FileStore(std::filesystem::path folder, std::chrono::milliseconds patience = kPatience)
      : folder_(std::move(folder)), patience_(patience) {}
  std::uint64_t begin_term() override;
  std::optional<std::string> read(std::string_view name) override;
  bool write(std::string_view name, std::string_view contents, Outlives outlives) override;
  void remove(std::string_view name) override;
  void publish(const std::string& /*job_file*/) override {}  // job.json is in the folder
  bool may_act() const override { return true; }
  std::string why_not() const override { return {}; }

 private:
  const std::filesystem::path folder_;
  const std::chrono::milliseconds patience_;
  struct Unheard {
    std::string name;
    std::string contents;
  };
  std::optional<Unheard> unheard_;    // what was not waited for any more
  std::atomic<bool> is_put_ = false;  // the last, whether or not it was waited for
  SideThread disk_;
};

}  // namespace distbelief
