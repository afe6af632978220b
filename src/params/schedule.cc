#include "params/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/nearest_name.h"

namespace distbelief {

namespace {

constexpr std::array<std::string_view, 3> kNames = {"constant", "step", "cosine"};

void require(bool fits, std::string_view option, double value, std::string_view expected) {
  if (!fits || !std::isfinite(value)) {
    throw InputError(fmt::format("learning-rate schedule: {} is {}; expected {}", option, value, expected));
  }
}

void validate(const ScheduleOptions& options) {
  require(options.rate > 0, "rate", options.rate, "a number above 0");
  require(options.gamma > 0, "gamma", options.gamma, "a number above 0");
  require(options.floor >= 0 && options.floor <= options.rate, "floor", options.floor, "a number from 0 to the rate");
  require(options.warmup_epochs >= 0, "warmup_epochs", options.warmup_epochs, "a number of epochs, 0 or more");
  require(options.step_every >= 0, "step_every", options.step_every, "a number of epochs above 0");
  for (const double milestone : options.milestones) {
    require(milestone >= 0, "milestones", milestone, "numbers of epochs, 0 or more");
  }
  if (options.warmup_steps > 0 && options.warmup_epochs > 0) {
    throw InputError("learning-rate schedule: warmup_steps and warmup_epochs are both given; expected one of them");
  }
  if (options.name == "step" && (options.step_every > 0) == !options.milestones.empty()) {
    throw InputError("learning-rate schedule: step needs either step_every or milestones, in epochs");
  }
}

}  // namespace

std::vector<std::string_view> schedule_names() { return {kNames.begin(), kNames.end()}; }

Schedule make_schedule(const ScheduleOptions& options) {
  constexpr std::array<Schedule::Curve, kNames.size()> kCurves = {Schedule::constant, Schedule::step_down,
                                                                  Schedule::cosine};
  const auto found = std::ranges::find(kNames, options.name);
  if (found == kNames.end()) {
    throw InputError(fmt::format("unknown learning-rate schedule '{}'; expected one of {}{}", options.name,
                                 listed(kNames), did_you_mean(options.name, kNames)));
  }
  validate(options);
  return {options, kCurves[static_cast<std::size_t>(found - kNames.begin())]};
}

Schedule::Schedule(ScheduleOptions options, Curve curve) : options_(std::move(options)), curve_(curve) {
  options_.steps_per_epoch = std::max<std::uint64_t>(1, options_.steps_per_epoch);
  const double in_epochs = options_.warmup_epochs * static_cast<double>(options_.steps_per_epoch);
  warmup_ = std::max(options_.warmup_steps, static_cast<std::uint64_t>(std::llround(in_epochs)));
}

float Schedule::rate(std::uint64_t step, std::uint64_t total_steps) const {
  double part = 1;
  if (step < warmup_) {
    part = static_cast<double>(step + 1) / static_cast<double>(warmup_);
  } else {
    part = curve_(*this, static_cast<double>(step), static_cast<double>(total_steps));
  }
  return static_cast<float>(options_.rate * part);
}

double Schedule::constant(const Schedule& /*schedule*/, double /*step*/, double /*total_steps*/) { return 1; }

/// Epochs count from the start of the run, warm-up included, as in papers that name milestones.
double Schedule::step_down(const Schedule& schedule, double step, double /*total_steps*/) {
  const ScheduleOptions& options = schedule.options_;
  const double epoch = step / static_cast<double>(options.steps_per_epoch);
  const double falls =
      options.milestones.empty()
          ? std::floor(epoch / options.step_every)
          : static_cast<double>(std::ranges::count_if(options.milestones, [&](double at) { return at <= epoch; }));
  return std::pow(options.gamma, falls);
}

/// Loshchilov and Hutter 2017, one half-wave from the end of the warm-up to the end of the run.
double Schedule::cosine(const Schedule& schedule, double step, double total_steps) {
  const auto warmup = static_cast<double>(schedule.warmup_);
  const double progress = std::clamp((step - warmup) / std::max(1.0, total_steps - warmup), 0.0, 1.0);
  const double floor = schedule.options_.floor / schedule.options_.rate;
  return floor + (1 - floor) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

}  // namespace distbelief
