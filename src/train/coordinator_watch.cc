#include "train/coordinator_watch.h"

#include <algorithm>

namespace distbelief {
namespace {

constexpr std::chrono::seconds kPatience{5};
/// Until one that was started has said something: it may have to wait for a disk that is busy. Members wait for it 30
/// s.
constexpr std::chrono::seconds kBeginPatience{20};
constexpr std::chrono::seconds kLongSleep{1};

}  // namespace

void CoordinatorWatch::heard(std::uint64_t term, Clock::time_point at) {
  if (term != term_) {
    term_ = term;
    begins_ = false;
  }
  heard_ = std::max(heard_, at);
}

void CoordinatorWatch::heard_anew(Clock::time_point at) {
  begins_ = false;
  heard_ = std::max(heard_, at);
}

void CoordinatorWatch::ended(Clock::time_point now) {
  begins_ = true;
  began_ = now;
}

void CoordinatorWatch::woke(Clock::time_point fell_asleep, Clock::time_point now) {
  began_ = now - fell_asleep > kLongSleep ? now : began_;
}

bool CoordinatorWatch::hangs(Clock::time_point now) const {
  return now >= (begins_ ? began_ + kBeginPatience : std::max(began_, heard_) + kPatience);
}

}  // namespace distbelief
