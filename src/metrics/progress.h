#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace distbelief {

struct ProgressOptions {
  std::FILE* out = stderr;  ///< borrowed; outlives the display
  bool terminal = false;    ///< a bar that is redrawn; otherwise plain lines
  bool color = false;       ///< terminal only
  bool unicode = true;      ///< the bar in box-drawing characters, not in ASCII
  int columns = 0;          ///< 0 asks the terminal at each redraw
};

/// Where a training stands.
struct ProgressState {
  std::int64_t epoch = 1;  ///< the one under way, from 1
  std::int64_t epochs = 1;
  std::int64_t step = 0;  ///< steps done in this epoch
  std::int64_t steps = 1;
  double loss = 0;
  std::optional<double> accuracy;
  double samples_per_second = 0;
  std::string_view round = "epoch";  ///< what people call an epoch
};

/// Tells a person how a training goes: on a terminal one line with a bar, redrawn at most ten times a second; elsewhere
/// a plain line now and then. update() may be called at every step, for it is cheap when nothing is due. What cannot be
/// written is dropped: nobody stops training because a pipe was closed. One thread.
class ProgressDisplay {
 public:
  explicit ProgressDisplay(const ProgressOptions& options) : options_(options) {}
  /// Removes the bar.
  ~ProgressDisplay();
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  void update(const ProgressState& state, Clock::time_point now = Clock::now());
  /// A line that stays: the end of an epoch, a warning. The bar comes back with the next update().
  void line(std::string_view text);

 private:
  double seconds_left(const ProgressState& state, Clock::time_point now);
  void clear_bar();

  ProgressOptions options_;
  bool bar_shown_ = false;
  std::optional<Clock::time_point> drawn_;  // when something was last shown
  std::optional<Clock::time_point> begun_;
  double fraction_at_begin_ = 0;
};

/// The bar's line in at most `columns` columns; what matters less is left out first.
std::string progress_line(const ProgressState& state, double seconds_left, int columns, bool color, bool unicode);

}  // namespace distbelief
