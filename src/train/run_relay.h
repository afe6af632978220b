#pragma once

#include <functional>
#include <optional>
#include <string>

#include "train/trainer.h"

namespace distbelief {

/// The leader's end of the way from a worker process to whoever shows the run: what an observer hears, as lines of
/// text. Steps are told ten times a second at most.
class RunRelay : public RunObserver {
 public:
  /// `send` is called on the training thread.
  explicit RunRelay(std::function<void(const std::string& line)> send) : send_(std::move(send)) {}
  void started(const std::vector<std::string>& lines) override;
  void stepped(const ProgressState& state) override;
  void epoch_ended(const EpochReport& report) override;
  void note(std::string_view text) override;
  /// The last one.
  void ended(const RunSummary& summary) override;

 private:
  const std::function<void(const std::string& line)> send_;
  std::optional<Clock::time_point> told_;
};

/// The other end: tells `observer` what the line says. A line that no relay wrote is a note. Returns the summary when
/// it is that.
std::optional<RunSummary> replay_line(const std::string& line, RunObserver& observer);

/// What summary.json says of a run, as far as it is shown at the end, when it was written after `since`; for one whose
/// last line got lost.
std::optional<RunSummary> written_summary(const std::filesystem::path& folder,
                                          std::filesystem::file_time_type since);

}  // namespace distbelief
