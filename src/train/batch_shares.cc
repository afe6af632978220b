#include "train/batch_shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "data/loader.h"

namespace distbelief {
namespace {

constexpr std::int64_t kUnits = 64;           ///< of a batch, at least
constexpr std::int64_t kUnitsEach = 8;        ///< of an equal share, likewise
constexpr std::int64_t kMostEqualShares = 4;  ///< that one member takes: it has to have the memory
constexpr int kSpeedBits = 40;                ///< that count, and what they are scaled to, so that products fit:
constexpr std::uint64_t kMostWeight = 1 << 20;

constexpr std::size_t kLeastSteps = 10;  ///< of a window
constexpr std::size_t kStepsKept = 256;  ///< likewise, of which there are times
constexpr std::uint64_t kShortWindow = 1'000'000'000;
constexpr std::uint64_t kLongWindow = 32 * kShortWindow;
// In hundredths of the time of a step.
constexpr std::uint64_t kWorthAChange = 6;
constexpr std::uint64_t kMuch = 20;  ///< so much is no noise

template <typename Number>
Number median_of(std::vector<Number> numbers) {
  const auto middle = numbers.begin() + std::ssize(numbers) / 2;
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

/// That of all others.
std::uint64_t median_of_others(std::span<const std::uint64_t> numbers, std::size_t self) {
  std::vector<std::uint64_t> others(numbers.begin(), numbers.end());
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(self));
  return median_of(std::move(others));
}

}  // namespace

std::vector<std::int64_t> equal_shares(std::int64_t batch, std::size_t members) {
  std::vector<std::int64_t> shares;
  for (std::size_t i = 0; i < members; ++i) {
    const auto before = [&](std::size_t part) {
      return static_cast<std::int64_t>(samples_before_part(static_cast<std::uint64_t>(batch), part, members));
    };
    shares.push_back(before(i + 1) - before(i));
  }
  return shares;
}

std::int64_t share_unit(std::int64_t batch, std::size_t members) {
  return std::max<std::int64_t>(1, batch / std::max(kUnits, kUnitsEach * static_cast<std::int64_t>(members)));
}

std::vector<std::int64_t> proportional_shares(std::int64_t batch, std::span<const std::uint64_t> speeds,
                                              std::span<const std::int64_t> before) {
  const std::size_t members = speeds.size();
  check(members > 0 && (before.empty() || before.size() == members), "a speed of each member");
  const auto count = static_cast<std::int64_t>(members);
  if (batch < count) {
    return equal_shares(batch, members);
  }
  const std::int64_t unit = share_unit(batch, members);
  std::uint64_t fastest = std::max<std::uint64_t>(1, std::ranges::max(speeds));
  const int too_long = std::max(0, static_cast<int>(std::bit_width(fastest)) - kSpeedBits);
  fastest >>= too_long;
  std::vector<std::uint64_t> weights;
  for (const std::uint64_t speed : speeds) {
    weights.push_back(std::max<std::uint64_t>(1, (speed >> too_long) * kMostWeight / fastest));
  }
  std::vector<std::int64_t> shares(members), most(members);
  const std::int64_t most_of_any = std::max(unit, (batch + count - 1) / count * kMostEqualShares);
  std::int64_t left = batch;
  for (std::size_t i = 0; i < members; ++i) {
    shares[i] = before.empty() ? unit : std::max(unit, before[i] / 2 / unit * unit);
    most[i] = before.empty() ? most_of_any : std::min(most_of_any, 2 * std::max(unit, before[i]));
    left -= shares[i];
  }
  check(left >= 0, "halves are no more than the whole");
  // The next unit goes to who would be done with it first; of equals to the first that has less.
  const auto done_first = [&](std::int64_t more, bool bounded) {
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < members; ++i) {
      if (bounded && shares[i] + more > most[i]) {
        continue;
      }
      const auto key = [&](std::size_t of, std::size_t against) {
        return static_cast<std::uint64_t>(shares[of] + more) * weights[against];
      };
      if (!best || key(i, *best) < key(*best, i)) {
        best = i;
      }
    }
    return best;
  };
  while (left > 0) {
    const std::int64_t more = std::min(left, unit);
    const std::optional<std::size_t> bounded = done_first(more, true);
    shares[bounded ? *bounded : *done_first(more, false)] += more;
    left -= more;
  }
  return shares;
}

BatchBalance::BatchBalance(std::vector<std::int64_t> shares, bool always)
    : shares_(std::move(shares)), always_(always), least_(kShortWindow) {
  begin_window();
}

void BatchBalance::begin_window() {
  to_skip_ = 1;
  window_ = 0;
  steps_ = 0;
  times_.assign(shares_.size(), {});
}

std::optional<BatchBalance::Change> BatchBalance::heard(std::span<const StepCosts> costs) {
  if (costs.size() != shares_.size()) {
    return std::nullopt;
  }
  const auto is_whole = [&](std::size_t i) {
    return shares_[i] > 0 && costs[i].rows == static_cast<std::uint64_t>(shares_[i]);
  };
  for (std::size_t i = 0; i < costs.size(); ++i) {
    if (!is_whole(i)) {
      return std::nullopt;  // an epoch's last batch, or a step with the shares before
    }
  }
  if (!always_ && std::ranges::all_of(costs, [&](const StepCosts& one) { return one.host == costs[0].host; })) {
    return std::nullopt;
  }
  if (to_skip_ > 0) {
    --to_skip_;
    return std::nullopt;
  }
  std::uint64_t longest = 0;
  for (std::size_t i = 0; i < costs.size(); ++i) {
    const std::uint64_t time = std::max<std::uint64_t>(1, costs[i].computed + costs[i].loaded);
    if (times_[i].size() < kStepsKept) {
      times_[i].push_back(time);
    } else {
      times_[i][steps_ % kStepsKept] = time;
    }
    longest = std::max(longest, time);
  }
  ++steps_;
  window_ += longest;
  return steps_ >= kLeastSteps && window_ >= least_ ? look() : std::nullopt;
}

std::optional<BatchBalance::Change> BatchBalance::look() {
  std::vector<std::uint64_t> times;
  Change change;
  for (std::size_t i = 0; i < shares_.size(); ++i) {
    times.push_back(median_of(times_[i]));
    constexpr std::uint64_t kSecond = 1'000'000'000;
    change.speeds.push_back(std::max<std::uint64_t>(1, static_cast<std::uint64_t>(shares_[i]) * kSecond / times[i]));
  }
  std::int64_t batch = 0;
  for (const std::int64_t share : shares_) {
    batch += share;
  }
  change.shares = proportional_shares(batch, change.speeds, shares_);
  const std::uint64_t now = std::ranges::max(times);
  std::uint64_t then = 0;
  for (std::size_t i = 0; i < shares_.size(); ++i) {
    then = std::max(then,
                    times[i] * static_cast<std::uint64_t>(change.shares[i]) / static_cast<std::uint64_t>(shares_[i]));
  }
  const bool much = then * 100 <= now * (100 - kMuch);
  const bool better = then * 100 <= now * (100 - kWorthAChange) && change.shares != shares_;
  least_ = much ? kShortWindow : std::min(kLongWindow, 2 * least_);
  if (better) {
    shares_ = change.shares;
  }
  begin_window();
  return better ? std::optional(change) : std::nullopt;
}

std::string shares_text(std::span<const int> workers, std::span<const std::int64_t> shares,
                        std::span<const std::uint64_t> speeds) {
  constexpr std::size_t kMostNamed = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(shares.size(), kMostNamed); ++i) {
    text += fmt::format("{}worker {} {}", i == 0 ? "" : ", ", workers[i], shares[i]);
  }
  if (shares.size() > kMostNamed) {
    const auto [least, most] = std::ranges::minmax(shares.subspan(kMostNamed));
    text += fmt::format(", others {} to {}", least, most);
  }
  const char* before = ": ";
  for (std::size_t i = 0; i < speeds.size() && speeds.size() > 1; ++i) {
    const double slower = static_cast<double>(median_of_others(speeds, i)) / static_cast<double>(speeds[i]);
    if (slower >= 1.25) {
      text += fmt::format("{}worker {} takes {:.1f} times as long a sample", before, workers[i], slower);
      before = ", ";
    }
  }
  return text;
}

}  // namespace distbelief
