#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace distbelief {

/// How the learning rate goes over a run. Lengths are in epochs unless they say steps; steps_per_epoch converts.
struct ScheduleOptions {
  std::string name = "constant";  ///< constant, step or cosine
  double rate = 0.01;             ///< the rate that the schedule starts from, after the warm-up
  std::uint64_t steps_per_epoch = 1;
  double step_every = 0;                ///< step: × gamma after each so many epochs
  std::vector<double> milestones = {};  ///< step: × gamma at these epochs, in place of step_every
  double gamma = 0.1;                   ///< step
  double floor = 0;                     ///< cosine: the rate at the end of the run
  std::uint64_t warmup_steps = 0;       ///< rises by equal parts to `rate` over so many steps
  double warmup_epochs = 0;             ///< the same, in epochs; only one of the two may be given
};

/// The learning rate as a pure function of the step, so that a resumed run needs no state. Immutable, thread-safe.
class Schedule {
 public:
  /// For the step-th update, from 0, of a run of total_steps.
  float rate(std::uint64_t step, std::uint64_t total_steps) const;

 private:
  friend Schedule make_schedule(const ScheduleOptions& options);
  /// What a schedule says after the warm-up: which part of options.rate.
  using Curve = double (*)(const Schedule&, double step, double total_steps);
  Schedule(ScheduleOptions options, Curve curve);

  static double constant(const Schedule& schedule, double step, double total_steps);
  static double step_down(const Schedule& schedule, double step, double total_steps);
  static double cosine(const Schedule& schedule, double step, double total_steps);

  ScheduleOptions options_;
  Curve curve_;
  std::uint64_t warmup_ = 0;  // steps
};

/// Throws InputError for an unknown name, with those that exist, and for options out of range.
Schedule make_schedule(const ScheduleOptions& options);
std::vector<std::string_view> schedule_names();

}  // namespace distbelief
