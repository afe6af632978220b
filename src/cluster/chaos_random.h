#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace distbelief {

/// What a job goes on without.
struct ChaosBounds {
  int workers = 1;
  int servers = 0;
  int parts = 1;                   ///< workers that hold one copy of the network together: with one, all of them end
  bool survives_a_worker = false;  ///< the death of one, as long as another lives
  bool survives_a_server = false;
};

/// The seed of "random:SEED"; nothing when the text is a script. Throws InputError when the seed is no number.
std::optional<std::uint64_t> random_chaos_seed(std::string_view text);

/// A script of several events that a job within these bounds must survive. The same for the same seed and bounds.
std::string random_chaos(std::uint64_t seed, const ChaosBounds& bounds);

}  // namespace distbelief
