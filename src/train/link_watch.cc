#include "train/link_watch.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <iterator>

namespace distbelief {
namespace {

constexpr std::int64_t kStepsOfALook = 10;
constexpr double kSecondsOfALook = 1;
constexpr double kMuchOfAStep = 0.3;
constexpr double kTimesAsLong = 3;
constexpr double kLeastDelay = 0.0005;  ///< seconds; less is nobody's fault
constexpr int kRounds = 4;
constexpr int kFarthest = 4;  ///< positions away, where there are many members
constexpr int kFew = 10;      ///< members that all measure all

bool are_measured(int a, int b, int size) {
  const int apart = std::abs(a - b);
  return size <= kFew || std::min(apart, size - apart) <= kFarthest;
}

/// One message there and one back.
Outcome go_and_come_back(Group& group, int other, std::uint32_t number, Clock::time_point deadline) {
  const Rank peer = group.members()[static_cast<std::size_t>(other)];
  const bool begins = group.position() < other;
  std::array<std::byte, 8> out = {};
  std::array<std::byte, 8> in = {};
  const auto pass = [&](bool sends) {
    Transfer transfer;
    if (sends) {
      group.fabric().send(transfer, peer, group.peer_tag(number), out);
    } else {
      group.fabric().receive(transfer, peer, group.peer_tag(number), in);
    }
    return group.fabric().wait(transfer, deadline);
  };
  Outcome outcome = pass(begins);
  return outcome.ok() ? pass(!begins) : outcome;
}

}  // namespace

bool LinkWatch::heard(std::span<const StepCosts> costs) {
  if (costs.size() < 3 || std::ranges::any_of(costs, [](const StepCosts& one) { return one.rows == 0; })) {
    return false;  // of two nobody can say whose the link is
  }
  std::uint64_t longest = 0;
  std::uint64_t least_wait = ~std::uint64_t{0};
  for (const StepCosts& one : costs) {
    const std::uint64_t own = one.computed + one.loaded;
    longest = std::max(longest, one.took);
    least_wait = std::min(least_wait, one.took > own ? one.took - own : 0);
  }
  ++steps_;
  took_ += static_cast<double>(longest) * 1e-9;
  waited_ += static_cast<double>(least_wait) * 1e-9;
  if (steps_ < kStepsOfALook || took_ < kSecondsOfALook) {
    return false;
  }
  const bool much = waited_ > kMuchOfAStep * took_;
  if (!much) {
    held_up_ = 0;
    begin();
  }
  return much;
}

void LinkWatch::begin() {
  steps_ = 0;
  took_ = 0;
  waited_ = 0;
}

Outcome measure_links(Group& group, Clock::time_point deadline, std::vector<double>& round_trips) {
  round_trips.clear();
  const int self = group.position();
  // Pairs take turns in one order that all follow: whoever waits for another waits for one that is further behind.
  for (int first = 0; first < group.size(); ++first) {
    for (int second = first + 1; second < group.size(); ++second) {
      if ((self != first && self != second) || !are_measured(first, second, group.size())) {
        continue;
      }
      double least = -1;
      for (int round = 0; round < kRounds; ++round) {
        const Clock::time_point began = Clock::now();
        Outcome outcome =
            go_and_come_back(group, self == first ? second : first, static_cast<std::uint32_t>(round), deadline);
        if (!outcome.ok()) {
          return outcome;
        }
        const double seconds = seconds_since(began);
        least =
            least < 0 || round == 1 ? seconds : std::min(least, seconds);  // the first waits for who is not there yet
      }
      round_trips.push_back(least);
    }
  }
  return {};
}

int position_of_slow_links(std::span<const double> typical) {
  if (typical.size() < 3) {
    return -1;
  }
  const auto slowest = std::ranges::max_element(typical);
  std::vector<double> others(typical.begin(), typical.end());
  others.erase(others.begin() + (slowest - typical.begin()));
  const auto middle = others.begin() + std::ssize(others) / 2;
  std::ranges::nth_element(others, middle);
  const bool clearly = *slowest > kTimesAsLong * *middle && *slowest - *middle > kLeastDelay;
  return clearly ? static_cast<int>(slowest - typical.begin()) : -1;
}

Outcome LinkWatch::measure(Group& group, Clock::time_point deadline) {
  const double waited = waited_ / static_cast<double>(steps_);
  begin();
  std::vector<double> own;
  if (Outcome outcome = measure_links(group, deadline, own); !outcome.ok()) {
    return outcome;
  }
  // What is typical is between this member and the half of the others that it reaches best: one bad link is not its
  // own.
  const auto typical = own.begin() + (std::ssize(own) - 1) / 2;
  std::ranges::nth_element(own, typical);
  std::vector<std::uint64_t> all(static_cast<std::size_t>(group.size()));
  all[static_cast<std::size_t>(group.position())] = std::bit_cast<std::uint64_t>(*typical);
  if (Outcome outcome = group.all_gather(all, deadline); !outcome.ok()) {
    return outcome;
  }
  std::vector<double> of_all;
  std::ranges::transform(all, std::back_inserter(of_all),
                         [](std::uint64_t bits) { return std::bit_cast<double>(bits); });
  held_up_ = position_of_slow_links(of_all) == group.position() ? waited : 0;
  return {};
}

}  // namespace distbelief
