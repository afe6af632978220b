// How the workers of a synchronous group share a batch out: equally, as the user says, or by the speed that each has
// shown. All members know the same and come to the same shares after the same step; the place in the epoch is a count
// of samples of all, so that nothing but the loader has to know of shares.
#include <algorithm>
#include <cstdlib>
#include <functional>

#include "metrics/machine.h"
#include "train/trainer_run.h"

namespace distbelief {
namespace {

/// Shares that have changed by less than this part of an equal one are not worth a word.
constexpr std::int64_t kNoticeable = 10;

}  // namespace

StepMeter::StepMeter(const ComputeWatch& watch, const Loader& loader)
    : watch_(watch),
      loader_(loader),
      leased_(loader.leased()),
      computed_(watch.seconds()),
      loaded_(loader.wait_seconds()) {}

StepCosts StepMeter::costs(std::uint64_t host) const {
  const auto nanoseconds = [](double seconds) { return static_cast<std::uint64_t>(std::max(0.0, seconds * 1e9)); };
  return {.rows = loader_.leased() - leased_,
          .computed = nanoseconds(watch_.seconds() - computed_),
          .loaded = nanoseconds(loader_.wait_seconds() - loaded_),
          .took = nanoseconds(seconds_since(began_)),
          .host = host};
}

std::uint64_t host_number() { return std::hash<std::string>()(this_machine().host) | 1; }

std::vector<MemberShare> Trainer::Run::batch_shares() const {
  std::vector<MemberShare> all;
  if (team.group == nullptr || !is_synchronous(config) || part) {
    return all;
  }
  const std::vector<Rank>& members = team.group->members();
  const std::vector<std::int64_t> rows = shares.empty() ? equal_shares(global_batch, members.size()) : shares;
  for (std::size_t i = 0; i < members.size(); ++i) {
    all.push_back({members[i].value, rows[i]});
  }
  return all;
}

void Trainer::Run::settle_shares() {
  shares.clear();
  balance.reset();
  const std::size_t count = static_cast<std::size_t>(team.size());
  if (may_balance(config) && count > 1 && !part && global_batch >= 2 * team.size()) {
    const std::vector<Rank>& members = team.group->members();
    const std::vector<std::uint64_t> fixed = fixed_balance(config);
    std::vector<std::uint64_t> speeds(count);  // 0: not known
    std::uint64_t sum = 0;
    std::uint64_t known = 0;
    std::int64_t rows = 0;
    bool same = state.shares.size() == count;
    for (std::size_t i = 0; i < count; ++i) {
      const int rank = members[i].value;
      const auto before = std::ranges::find(state.shares, rank, &MemberShare::worker);
      if (!fixed.empty()) {
        speeds[i] = static_cast<std::size_t>(rank) < fixed.size() ? fixed[static_cast<std::size_t>(rank)] : 0;
      } else if (before != state.shares.end()) {
        speeds[i] = static_cast<std::uint64_t>(before->rows);
        shares.push_back(before->rows);
        rows += before->rows;
      }
      sum += speeds[i];
      known += speeds[i] > 0 ? 1 : 0;
    }
    same = same && shares.size() == count && rows == global_batch;
    if (!same) {
      shares.clear();
    }
    if (!same && known > 0) {
      constexpr std::uint64_t kScale = 1000;  // so that a mean is no whole number
      for (std::uint64_t& speed : speeds) {
        speed = speed > 0 ? speed * kScale : sum * kScale / known;
      }
      shares = proportional_shares(global_batch, speeds);
    }
    if (fixed.empty()) {
      balance.emplace(shares.empty() ? equal_shares(global_batch, count) : shares, config.balance == "on");
    }
  }
  take_shares();
}

void Trainer::Run::take_shares() {
  state.shares = shares.empty() ? std::vector<MemberShare>() : batch_shares();
  if (!shares.empty()) {
    strategy->expect_rows(std::ranges::max(shares));
  }
  team.activity->shares_batch(shares.empty() ? 0 : shares[static_cast<std::size_t>(team.position())]);
}

bool Trainer::Run::rebalance(std::span<const StepCosts> costs) {
  std::optional<BatchBalance::Change> change = balance ? balance->heard(costs) : std::nullopt;
  if (!change) {
    return false;
  }
  const std::vector<MemberShare> before = batch_shares();
  shares = change->shares;
  take_shares();
  if (told_shares.size() != before.size()) {
    told_shares = before;
  }
  bool noticeable = false;
  std::vector<int> workers;
  for (std::size_t i = 0; i < state.shares.size(); ++i) {
    workers.push_back(state.shares[i].worker);
    noticeable =
        noticeable || std::abs(state.shares[i].rows - told_shares[i].rows) * team.size() * kNoticeable >= global_batch;
  }
  if (noticeable) {
    told_shares = state.shares;
    if (team.leads()) {
      observer.note("shares of the batch: " + shares_text(workers, shares, change->speeds));
    }
  }
  return true;
}

}  // namespace distbelief
