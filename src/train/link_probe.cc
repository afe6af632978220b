#include "train/link_probe.h"

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

#include "base/error.h"
#include "transport/socket/socket_fabric.h"

namespace distbelief {
namespace {

constexpr int kSmallRounds = 200;
constexpr int kLargeRounds = 6;
constexpr std::size_t kLargeBytes = std::size_t{8} << 20;
constexpr std::chrono::seconds kProbePatience{5};

/// How a round goes: first one way, then the other; or both at once, as processes that share a layer do it.
enum class Round : std::uint8_t { in_turns, at_once };

/// One message there and one back, so many times; the least time of a round. Negative when the other is lost.
double least_round(Fabric& fabric, std::span<const std::byte> out, std::span<std::byte> in, int rounds, Round kind) {
  const Rank other = {1 - fabric.rank().value};
  const bool answers = kind == Round::in_turns && fabric.rank().value == 1;
  double least = -1;
  for (int round = 0; round < rounds; ++round) {
    Transfer there;
    Transfer back;
    const Tag tag = {kind == Round::in_turns ? 1U : 2U, static_cast<std::uint32_t>(round)};
    const Clock::time_point began = Clock::now();
    const Clock::time_point deadline = began + kProbePatience;
    fabric.receive(back, other, tag, in);
    bool sound = !answers || fabric.wait(back, deadline).ok();
    fabric.send(there, other, tag, out);
    sound = fabric.wait(there, deadline).ok() && sound;
    sound = (answers || fabric.wait(back, deadline).ok()) && sound;
    if (!sound) {
      return -1;
    }
    const double seconds = seconds_since(began);
    least = least < 0 ? seconds : std::min(least, seconds);
  }
  return least;
}

}  // namespace

std::optional<LinkSpeed> probe_local_link() {
  try {
    SocketListener first(Address::tcp("127.0.0.1", 0));
    SocketListener second(Address::tcp("127.0.0.1", 0));
    const std::array<SocketListener*, 2> listeners = {&first, &second};
    const std::vector<Address> addresses = {first.address(), second.address()};
    std::array<double, 2> small = {};
    std::array<double, 2> large = {};
    const auto run = [&](int rank) {
      const SocketFabricResult connected =
          connect_socket_fabric(Rank{rank}, addresses, *listeners[static_cast<std::size_t>(rank)],
                                {.token = "probe", .job = "probe", .view = 1}, Clock::now() + kProbePatience);
      if (connected.fabric == nullptr) {
        return;
      }
      const std::vector<std::byte> out(kLargeBytes);
      std::vector<std::byte> in(kLargeBytes);
      const auto at = static_cast<std::size_t>(rank);
      small[at] = least_round(*connected.fabric, std::span(out).first(64), std::span(in).first(64), kSmallRounds,
                              Round::in_turns);
      large[at] = least_round(*connected.fabric, out, in, kLargeRounds, Round::at_once);
    };
    {
      const std::jthread other([&] { run(1); });
      run(0);
    }
    if (small[0] <= 0 || large[0] <= small[0]) {
      return std::nullopt;
    }
    return LinkSpeed{.latency = small[0] / 2, .bandwidth = kLargeBytes / (large[0] - small[0] / 2)};
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace distbelief
