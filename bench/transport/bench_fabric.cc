// bench_fabric [LINK…]   Latency and bandwidth of the data plane's links between two threads of this process.
//
// One line a link and size: half a round trip in microseconds, and GB/s when one side sends and the other receives with
// two messages open. Every figure is the best of five, as other processes can only make it worse.

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "transport/local/local_fabric.h"
#include "transport/socket/socket_fabric.h"

namespace distbelief {
namespace {

using Fabrics = std::vector<std::unique_ptr<Fabric>>;

Clock::time_point patience() { return Clock::now() + std::chrono::seconds(60); }

void require(const Outcome& outcome) {
  if (!outcome.ok()) {
    throw Error(fmt::format("rank {} {}", outcome.peer.value, outcome.reason));
  }
}

Fabrics socket_fabrics(const std::vector<Address>& where) {
  std::vector<std::unique_ptr<SocketListener>> listeners;
  std::vector<Address> addresses;
  for (const Address& address : where) {
    listeners.push_back(std::make_unique<SocketListener>(address));
    addresses.push_back(listeners.back()->address());
  }
  const auto connect = [&](int rank) {
    return connect_socket_fabric(Rank{rank}, addresses, *listeners[static_cast<std::size_t>(rank)], {}, patience());
  };
  auto second = std::async(std::launch::async, connect, 1);
  SocketFabricResult results[] = {connect(0), second.get()};
  Fabrics fabrics;
  for (SocketFabricResult& result : results) {
    if (result.fabric == nullptr) {
      throw Error(result.reason);
    }
    fabrics.push_back(std::move(result.fabric));
  }
  return fabrics;
}

/// `rounds` messages there and back.
void ping_pong(Fabric& fabric, std::size_t bytes, int rounds) {
  const Rank peer{1 - fabric.rank().value};
  std::vector<std::byte> out(bytes);
  std::vector<std::byte> in(bytes);
  for (int i = 0; i < rounds; ++i) {
    const Tag tag = {1, static_cast<std::uint32_t>(i)};
    Transfer send;
    Transfer receive;
    fabric.receive(receive, peer, tag, in);
    if (fabric.rank().value == 0) {
      fabric.send(send, peer, tag, out);
      require(fabric.wait(receive, patience()));
    } else {
      require(fabric.wait(receive, patience()));
      fabric.send(send, peer, tag, out);
    }
    require(fabric.wait(send, patience()));
  }
}

/// `rounds` messages from rank 0 to rank 1, two open at a time.
void stream(Fabric& fabric, std::size_t bytes, int rounds) {
  const Rank peer{1 - fabric.rank().value};
  std::vector<std::byte> memory[2] = {std::vector<std::byte>(bytes), std::vector<std::byte>(bytes)};
  Transfer transfers[2];
  for (int i = 0; i < rounds + 2; ++i) {
    if (i >= 2) {
      require(fabric.wait(transfers[i % 2], patience()));
    }
    if (i < rounds) {
      const Tag tag = {2, static_cast<std::uint32_t>(i)};
      fabric.rank().value == 0 ? fabric.send(transfers[i % 2], peer, tag, memory[i % 2])
                               : fabric.receive(transfers[i % 2], peer, tag, memory[i % 2]);
    }
  }
}

double seconds_of(Fabrics& fabrics, void (*work)(Fabric&, std::size_t, int), std::size_t bytes, int rounds) {
  double best = 1e9;
  for (int attempt = 0; attempt < 5; ++attempt) {
    const auto start = Clock::now();
    std::jthread second([&] { work(*fabrics[1], bytes, rounds); });
    work(*fabrics[0], bytes, rounds);
    second.join();
    best = std::min(best, seconds_since(start));
  }
  return best;
}

void measure(const std::string& name, Fabrics fabrics) {
  for (const std::size_t bytes : {64UL, 4096UL, 65536UL, 1UL << 20, 4UL << 20, 32UL << 20}) {
    const int rounds = static_cast<int>(std::clamp<std::size_t>((256UL << 20) / bytes, 10, 2000));
    const double latency = seconds_of(fabrics, ping_pong, bytes, rounds) / (2 * rounds);
    const double streaming = seconds_of(fabrics, stream, bytes, rounds);
    fmt::print("{:<6} {:>9} bytes  {:>8.1f} us one way  {:>7.3f} GB/s\n", name, bytes, latency * 1e6,
               static_cast<double>(bytes) * rounds / streaming * 1e-9);
    std::fflush(stdout);
  }
}

void measure_crc32c() {
  const std::vector<std::byte> memory(std::size_t{256} << 10);
  constexpr int kRounds = 4000;
  std::uint32_t crc = 0;
  const auto start = Clock::now();
  for (int i = 0; i < kRounds; ++i) {
    crc = crc32c(memory, crc);
  }
  fmt::print("crc32c {:>9} bytes  {:>30.3f} GB/s ({:08x})\n", memory.size(),
             static_cast<double>(memory.size()) * kRounds / seconds_since(start) * 1e-9, crc);
}

int run(int argc, char** argv) {
  CLI::App app("Latency and bandwidth of the data plane's links");
  std::vector<std::string> links = {"crc32c", "local", "unix", "tcp"};
  app.add_option("links", links, "which of local, unix, tcp, crc32c; all without");
  CLI11_PARSE(app, argc, argv);
  for (const std::string& link : links) {
    if (link == "local") {
      measure(link, make_local_fabrics(2));
    } else if (link == "unix") {
      std::string folder = "/tmp/bench_fabric.XXXXXX";
      if (::mkdtemp(folder.data()) == nullptr) {
        throw FileError("cannot make " + folder);
      }
      Fabrics fabrics = socket_fabrics({Address::unix_path(folder + "/0"), Address::unix_path(folder + "/1")});
      ::rmdir(folder.c_str());
      measure(link, std::move(fabrics));
    } else if (link == "tcp") {
      measure(link, socket_fabrics({Address::tcp("127.0.0.1", 0), Address::tcp("127.0.0.1", 0)}));
    } else if (link == "crc32c") {
      measure_crc32c();
    } else {
      throw InputError(fmt::format("link '{}': expected local, unix, tcp or crc32c", link));
    }
  }
  return 0;
}

}  // namespace
}  // namespace distbelief

int main(int argc, char** argv) {
  try {
    return distbelief::run(argc, argv);
  } catch (const distbelief::Error& error) {
    fmt::print(stderr, "bench_fabric: {}\n", error.what());
    return error.exit_code();
  }
}
