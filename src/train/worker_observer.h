#pragma once

#include <fmt/format.h>

#include <optional>

#include "cluster/member.h"
#include "metrics/format.h"
#include "train/process_log.h"
#include "train/run_relay.h"
#include "train/worker_activity.h"

namespace distbelief {

/// Writes down what happens. Whoever leads also relays what people should see, or shows it.
class WorkerObserver : public RunObserver {
 public:
  /// `leads` is asked each time: another may lead later.
  WorkerObserver(Member& member, WorkerActivity& activity, const ProcessLog& log, std::function<bool()> leads,
                 RunObserver* show)
      : member_(member),
        activity_(activity),
        log_(log),
        relay_([&](const std::string& line) { member.notice(line); }),
        shown_(show == nullptr ? relay_ : *show),
        leads_(std::move(leads)) {}
  void started(const std::vector<std::string>& lines) override {
    for (const std::string& line : lines) {
      log_.line(line);
    }
    if (leads()) {
      shown_.started(lines);
    }
  }
  void stepped(const ProgressState& state) override {
    activity_.stepped(state);
    if (leads()) {
      shown_.stepped(state);
    }
  }
  void epoch_ended(const EpochReport& report) override {
    log_.line(fmt::format("epoch {} ended: loss {:.4f}", report.epoch, unsigned_nan(report.train_loss)));
    if (leads()) {
      shown_.epoch_ended(report);
    }
  }
  void takes_over() override { leads_now_ = true; }
  void follows() override { leads_now_ = false; }
  void ended(const RunSummary& summary) override {
    relay_.ended(summary);
    (void)member_.flush(Clock::now() + kFlushPatience);
    has_ended_ = true;
  }
  /// Whether the last word is said.
  bool has_ended() const { return has_ended_; }
  void note(std::string_view text) override {
    log_.line(text);
    shown_.note(text);
  }
  RunRelay& relay() { return relay_; }

 private:
  bool leads() const { return leads_now_.value_or(leads_()); }
  static constexpr std::chrono::seconds kFlushPatience{5};

  Member& member_;
  WorkerActivity& activity_;
  const ProcessLog& log_;
  RunRelay relay_;
  RunObserver& shown_;
  const std::function<bool()> leads_;
  std::optional<bool> leads_now_;  ///< since it changed
  bool has_ended_ = false;
};

}  // namespace distbelief
