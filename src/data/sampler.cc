#include "data/sampler.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "base/check.h"

namespace distbelief {
namespace {

/// Every bit of the result depends on every bit of `value`: two rounds of multiply and fold.
std::uint64_t mix(std::uint64_t value) {
  value ^= value >> 32;
  value *= 0xD6E8FEB86659FD93U;
  value ^= value >> 29;
  value *= 0x9FB21C651E98DF25U;
  return value >> 32;
}

}  // namespace

Sampler::Sampler(std::uint64_t samples, std::uint64_t seed, bool shuffle, RandomUse use)
    : samples_(samples), random_(seed, use), shuffle_(shuffle) {
  // Halves of fewer bits mix too slowly: a handful of samples would not see all orders equally often.
  const int bits = std::max(8, samples > 1 ? static_cast<int>(std::bit_width(samples - 1)) : 0);
  check(bits <= 63, "a sampler orders fewer than 2^63 samples");
  right_bits_ = bits - bits / 2;
  left_mask_ = (std::uint64_t{1} << (bits / 2)) - 1;
  right_mask_ = (std::uint64_t{1} << right_bits_) - 1;
}

Sampler::Keys Sampler::keys(std::uint64_t epoch) const {
  std::uint64_t key = random_.word64(epoch, 0);
  Keys result;
  for (std::uint64_t& round : result) {  // splitmix64 (Steele, Lea and Flood, 2014)
    std::uint64_t x = key += 0x9E3779B97F4A7C15U;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
    round = x ^ (x >> 31);
  }
  return result;
}

std::uint64_t Sampler::permute(const Keys& keys, std::uint64_t position) const {
  std::uint64_t left = position >> right_bits_;
  std::uint64_t right = position & right_mask_;
  do {
    for (std::size_t i = 0; i < kRounds; i += 2) {
      left ^= mix(right + keys[i]) & left_mask_;
      right ^= mix(left + keys[i + 1]) & right_mask_;
    }
  } while (((left << right_bits_) | right) >= samples_);
  return (left << right_bits_) | right;
}

std::uint64_t Sampler::at(std::uint64_t epoch, std::uint64_t position) const {
  std::uint64_t id = 0;
  fill(epoch, position, std::span(&id, 1));
  return id;
}

void Sampler::fill(std::uint64_t epoch, std::uint64_t first, std::span<std::uint64_t> ids) const {
  check(first <= samples_ && ids.size() <= samples_ - first, "the positions lie inside the epoch");
  const Keys round_keys = keys(epoch);
  const auto fill_run = [&](std::uint64_t position, std::span<std::uint64_t> run) {
    for (std::uint64_t& id : run) {
      id = shuffle_ ? permute(round_keys, position) : position;
      ++position;
    }
  };
  const auto changed = changed_.find(epoch);
  if (changed == changed_.end()) {
    fill_run(first, ids);
    return;
  }
  auto run = std::ranges::upper_bound(changed->second.runs, first, {}, &Changed::Run::position);
  while (!ids.empty()) {
    const Changed::Run& here = *std::prev(run);
    const std::uint64_t inside = first - here.position;
    const std::size_t count = std::min<std::uint64_t>(here.before.count - inside, ids.size());
    fill_run(here.before.first + inside, ids.first(count));
    ids = ids.subspan(count);
    first += count;
    ++run;
  }
}

void Sampler::put_first(std::uint64_t epoch, const std::vector<PositionRun>& done) {
  check(!changed_.contains(epoch), "an epoch's order changes once");
  Changed changed;
  std::uint64_t position = 0;
  const auto append = [&](const PositionRun& run) {
    if (run.count > 0) {
      changed.runs.push_back({position, run});
      position += run.count;
    }
  };
  std::ranges::for_each(done, append);
  changed.done = position;
  std::uint64_t end = 0;
  for (const PositionRun& run : done) {
    check(run.first >= end && run.count <= samples_ && run.first <= samples_ - run.count,
          "runs of positions ascend inside the epoch");
    append({end, run.first - end});
    end = run.first + run.count;
  }
  append({end, samples_ - end});
  changed_.emplace(epoch, std::move(changed));
}

std::uint64_t Sampler::done(std::uint64_t epoch) const {
  const auto changed = changed_.find(epoch);
  return changed == changed_.end() ? 0 : changed->second.done;
}

}  // namespace distbelief
