#include "cluster/straggler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace distbelief {
namespace {

constexpr double kSlow = 1.5;
constexpr double kNoLongerSlow = 1.25;
/// Steps of every worker in a window, at least: one may have been unlucky.
constexpr std::int64_t kLeastSteps = 3;
/// Windows in a row that say the same before it is told.
constexpr int kWindows = 2;
/// Less than so much more for a step, in seconds, holds up nobody.
constexpr double kLeastExcess = 0.0005;

using Parts = std::array<double, 3>;  // in the order of Straggler::Cause

Parts parts_of(const StepTimes& times) {
  const auto steps = static_cast<double>(times.steps);
  return {times.computed / steps, times.loaded / steps, times.linked / steps};
}

double sum_of(const Parts& parts) { return parts[0] + parts[1] + parts[2]; }

template <typename Of>
double median_of_others(const std::vector<Parts>& all, std::size_t self, const Of& of) {
  std::vector<double> others;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i != self) {
      others.push_back(of(all[i]));
    }
  }
  const auto middle = others.begin() + std::ssize(others) / 2;
  std::nth_element(others.begin(), middle, others.end());
  return *middle;
}

StepTimes difference(const StepTimes& now, const StepTimes& before) {
  return {now.steps - before.steps, now.computed - before.computed, now.loaded - before.loaded,
          now.linked - before.linked};
}

}  // namespace

std::string describe(const Straggler& straggler) {
  const char* const cause = straggler.cause == Straggler::Cause::computes ? "it computes slower"
                            : straggler.cause == Straggler::Cause::loads  ? "it waits for its data"
                                                                          : "its messages take longer to arrive";
  return fmt::format("takes {:.1f} times as long for a step as the others: {}", straggler.factor, cause);
}

std::vector<Straggler> find_stragglers(std::span<const WorkerTimes> workers, double factor) {
  std::vector<Straggler> found;
  const auto stands = [](const WorkerTimes& worker) { return worker.times.steps <= 0; };
  if (workers.size() < 2 || std::ranges::any_of(workers, stands)) {
    return found;
  }
  std::vector<Parts> all;
  for (const WorkerTimes& worker : workers) {
    all.push_back(parts_of(worker.times));
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double own = sum_of(all[i]);
    const double usual = median_of_others(all, i, sum_of);
    if (own < factor * usual || own - usual < kLeastExcess) {
      continue;
    }
    std::size_t cause = 0;
    double most = 0;
    for (std::size_t part = 0; part < all[i].size(); ++part) {
      const double excess = all[i][part] - median_of_others(all, i, [&](const Parts& other) { return other[part]; });
      if (excess > most) {
        most = excess;
        cause = part;
      }
    }
    found.push_back({workers[i].worker, usual > 0 ? own / usual : factor, static_cast<Straggler::Cause>(cause)});
  }
  return found;
}

const Straggler* StragglerWatch::find(std::uint64_t worker) const {
  const auto found = told_.find(worker);
  return found == told_.end() ? nullptr : &found->second;
}

std::vector<StragglerWatch::News> StragglerWatch::look(std::span<const WorkerTimes> workers, Clock::time_point now) {
  if (after_ == Clock::duration::zero()) {
    return {};
  }
  const auto begin = [&] {
    began_ = now;
    at_begin_.clear();
    for (const WorkerTimes& worker : workers) {
      at_begin_[worker.worker] = worker.times;
    }
  };
  std::vector<WorkerTimes> spent;
  for (const WorkerTimes& worker : workers) {
    const auto before = at_begin_.find(worker.worker);
    if (before == at_begin_.end() || worker.times.steps < before->second.steps || at_begin_.size() != workers.size()) {
      begin();  // somebody came or went, and others are to be compared now
      slow_.clear();
      fast_.clear();
      return {};
    }
    spent.push_back({worker.worker, difference(worker.times, before->second)});
  }
  const bool all_stepped =
      std::ranges::all_of(spent, [](const WorkerTimes& worker) { return worker.times.steps >= kLeastSteps; });
  if (spent.size() < 2 || !all_stepped || now - began_ < after_ / kWindows) {
    return {};
  }
  begin();
  return judge(spent);
}

std::vector<StragglerWatch::News> StragglerWatch::judge(const std::vector<WorkerTimes>& spent) {
  std::vector<News> news;
  const std::vector<Straggler> slow = find_stragglers(spent, kSlow);
  const std::vector<Straggler> still = find_stragglers(spent, kNoLongerSlow);
  for (const WorkerTimes& worker : spent) {
    const std::uint64_t id = worker.worker;
    const auto is_slow = std::ranges::find(slow, id, &Straggler::worker);
    const bool is_still = std::ranges::find(still, id, &Straggler::worker) != still.end();
    Slow& streak = slow_[id];
    if (is_slow == slow.end()) {
      streak = {};
    } else {
      streak = {streak.cause == is_slow->cause ? streak.windows + 1 : 1, is_slow->cause};
    }
    fast_[id] = is_still ? 0 : fast_[id] + 1;
    const auto told = told_.find(id);
    if (streak.windows >= kWindows && (told == told_.end() || told->second.cause != streak.cause)) {
      told_[id] = *is_slow;
      news.push_back({id, *is_slow});
    } else if (fast_[id] >= kWindows && told_.erase(id) > 0) {
      news.push_back({id, std::nullopt});
    }
  }
  return news;
}

}  // namespace distbelief
