#include "cluster/chaos_random.h"

#include <fmt/format.h>

#include <charconv>
#include <functional>
#include <random>
#include <vector>

#include "base/error.h"

namespace distbelief {
namespace {

constexpr std::string_view kPrefix = "random:";
constexpr int kLeastEvents = 3;
constexpr int kMostEvents = 5;
constexpr int kFirstShare = 10;  // percent; a run that has hardly begun, or is almost over, shows little
constexpr int kLastShare = 85;

/// Whole numbers from a seed, the same with every library.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  /// From `least` to `most`.
  int roll(int least, int most) {
    return least + static_cast<int>(engine_() % static_cast<std::uint64_t>(most - least + 1));
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace

std::optional<std::uint64_t> random_chaos_seed(std::string_view text) {
  if (!text.starts_with(kPrefix)) {
    return std::nullopt;
  }
  const std::string_view digits = text.substr(kPrefix.size());
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), seed);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) {
    throw InputError(fmt::format("column {}: expected a number after 'random:', such as random:7", kPrefix.size() + 1));
  }
  return seed;
}

std::string random_chaos(std::uint64_t seed, const ChaosBounds& bounds) {
  Dice dice(seed);
  int workers_to_kill = bounds.survives_a_worker && bounds.workers > bounds.parts ? 1 : 0;
  int servers_to_kill = bounds.survives_a_server && bounds.servers > 1 ? 1 : 0;
  int lost = bounds.workers;  // the first worker of the copy that is lost
  const auto living_worker = [&] {
    const int worker = dice.roll(0, bounds.workers - 1 - (lost < bounds.workers ? bounds.parts : 0));
    return worker >= lost ? worker + bounds.parts : worker;
  };
  const int count = dice.roll(kLeastEvents, kMostEvents);
  std::string script;
  for (int i = 0; i < count; ++i) {
    // One after the other, with some time between two of them.
    const int width = (kLastShare - kFirstShare) / count;
    const int share = kFirstShare + i * width + dice.roll(0, width * 2 / 3);
    std::string event;
    const int kind = i == 0 ? 0 : dice.roll(0, 5);  // of the coordinator's death every job has at least one
    if (kind == 4 && workers_to_kill > 0) {
      --workers_to_kill;
      const int killed = dice.roll(0, bounds.workers - 1);
      lost = killed / bounds.parts * bounds.parts;
      event = fmt::format("kill worker {} at {}%", killed, share);
    } else if (kind == 5 && servers_to_kill > 0) {
      --servers_to_kill;
      event = fmt::format("kill server {} at {}%", dice.roll(0, bounds.servers - 1), share);
    } else if (kind <= 1) {
      event = fmt::format("kill coordinator at {}%", share);
    } else if (kind == 2) {
      event = fmt::format("slow worker {} x{} from {}%", living_worker(), dice.roll(2, 4), share);
    } else {
      event = fmt::format("stop worker {} for {}ms at {}%", living_worker(), dice.roll(3, 20) * 100, share);
    }
    script += (script.empty() ? "" : "; ") + event;
  }
  return script;
}

}  // namespace distbelief
