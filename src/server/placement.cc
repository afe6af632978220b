#include "server/placement.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace distbelief {

namespace {

constexpr int kNobody = -1;
/// Points of a server on the ring. Their number evens out the arcs: with 128 they differ by about a tenth.
constexpr std::uint64_t kVirtualNodes = 128;
/// A server has room up to this part of the mean. What is left up to 110 is for the unevenness that changes bring.
constexpr std::int64_t kRoomPercent = 105;

enum class RingUse : std::uint64_t { server = 1, block = 2 };

/// The last steps of SplitMix64 (Steele, Lea and Flood 2014): every bit of the input changes half of the output.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/// Where something stands on the ring: the same on every machine and in every run.
std::uint64_t ring_place(RingUse use, std::uint64_t id, std::uint64_t copy) {
  return mix(mix(mix(static_cast<std::uint64_t>(use)) ^ id) ^ copy);
}

std::uint64_t block_place(std::size_t block) { return ring_place(RingUse::block, block, 0); }

}  // namespace

Placement::Placement(const BlockMap& map, std::vector<std::uint64_t> servers)
    : servers_(std::move(servers)), owners_(map.blocks().size(), kNobody), server_bytes_(servers_.size(), 0) {
  check(!servers_.empty(), "blocks need a server");
  for (const Block& block : map.blocks()) {
    block_bytes_.push_back(block.bytes());
    all_bytes_ += block.bytes();
  }
  build_ring();
  for (int block = 0; block < std::ssize(owners_); ++block) {
    give(block, choose_owner(block));
  }
}

int Placement::owner(int block) const { return owners_.at(static_cast<std::size_t>(block)); }

std::vector<int> Placement::blocks_of(int server) const {
  std::vector<int> blocks;
  for (int block = 0; block < std::ssize(owners_); ++block) {
    if (owner(block) == server) {
      blocks.push_back(block);
    }
  }
  return blocks;
}

std::int64_t Placement::bytes_of(int server) const { return server_bytes_.at(static_cast<std::size_t>(server)); }

std::int64_t Placement::percent_of_mean(std::int64_t percent) const {
  return all_bytes_ * percent / (100 * static_cast<std::int64_t>(servers_.size()));
}

void Placement::build_ring() {
  std::vector<std::uint64_t> ids = servers_;
  std::sort(ids.begin(), ids.end());
  check(std::adjacent_find(ids.begin(), ids.end()) == ids.end(), "two servers with one id");
  ring_.clear();
  for (int server = 0; server < std::ssize(servers_); ++server) {
    for (std::uint64_t copy = 0; copy < kVirtualNodes; ++copy) {
      ring_.push_back({ring_place(RingUse::server, servers_[static_cast<std::size_t>(server)], copy), server});
    }
  }
  std::sort(ring_.begin(), ring_.end(), [&](const RingPoint& a, const RingPoint& b) {
    return a.place != b.place
               ? a.place < b.place
               : servers_[static_cast<std::size_t>(a.server)] < servers_[static_cast<std::size_t>(b.server)];
  });
}

/// The first candidate with room. Where blocks are so large that nobody has any: the emptiest, which is below the mean.
int Placement::choose_owner(int block) const {
  const std::int64_t room = percent_of_mean(kRoomPercent) - block_bytes_[static_cast<std::size_t>(block)];
  auto point = std::lower_bound(ring_.begin(), ring_.end(), block_place(static_cast<std::size_t>(block)),
                                [](const RingPoint& p, std::uint64_t place) { return p.place < place; });
  int emptiest = kNobody;
  for (std::size_t seen = 0; seen < ring_.size(); ++seen, ++point) {
    if (point == ring_.end()) {
      point = ring_.begin();
    }
    if (bytes_of(point->server) <= room) {
      return point->server;
    }
    if (emptiest == kNobody || bytes_of(point->server) < bytes_of(emptiest)) {
      emptiest = point->server;
    }
  }
  return emptiest;
}

int Placement::fullest() const {
  int most = 0;
  for (int server = 1; server < std::ssize(servers_); ++server) {
    const std::int64_t difference = bytes_of(server) - bytes_of(most);
    const bool lower_id = servers_[static_cast<std::size_t>(server)] < servers_[static_cast<std::size_t>(most)];
    if (difference > 0 || (difference == 0 && lower_id)) {
      most = server;
    }
  }
  return most;
}

/// All blocks, those first that the server follows most closely on the ring.
std::vector<int> Placement::in_order_of_claim(int server) const {
  std::vector<std::uint64_t> places;
  for (const RingPoint& point : ring_) {
    if (point.server == server) {
      places.push_back(point.place);
    }
  }
  std::vector<std::uint64_t> distances;
  for (std::size_t block = 0; block < owners_.size(); ++block) {
    const auto next = std::lower_bound(places.begin(), places.end(), block_place(block));
    distances.push_back((next == places.end() ? places.front() : *next) - block_place(block));  // around the ring
  }
  std::vector<int> blocks(owners_.size());
  std::iota(blocks.begin(), blocks.end(), 0);
  std::stable_sort(blocks.begin(), blocks.end(), [&](int a, int b) {
    return distances[static_cast<std::size_t>(a)] < distances[static_cast<std::size_t>(b)];
  });
  return blocks;
}

void Placement::give(int block, int server) {
  const auto index = static_cast<std::size_t>(block);
  if (owners_[index] != kNobody) {
    server_bytes_[static_cast<std::size_t>(owners_[index])] -= block_bytes_[index];
  }
  owners_[index] = server;
  server_bytes_[static_cast<std::size_t>(server)] += block_bytes_[index];
}

std::vector<Move> Placement::add_server(std::uint64_t id) {
  const int joiner = static_cast<int>(servers_.size());
  servers_.push_back(id);
  server_bytes_.push_back(0);
  build_ring();
  const std::vector<int> claims = in_order_of_claim(joiner);
  std::vector<Move> moves;
  while (true) {
    const int from = fullest();
    const auto claim = std::find_if(claims.begin(), claims.end(), [&](int block) { return owner(block) == from; });
    if (from == joiner || claim == claims.end()) {
      break;
    }
    const std::int64_t bytes_then = bytes_of(joiner) + block_bytes_[static_cast<std::size_t>(*claim)];
    // More than the mean only where that helps, as with two blocks on one server.
    const bool relieves = bytes_of(from) > percent_of_mean(kRoomPercent) && bytes_then < bytes_of(from);
    if (bytes_then > percent_of_mean(100) && !relieves) {
      break;
    }
    give(*claim, joiner);
    moves.push_back({*claim, servers_[static_cast<std::size_t>(from)], id});
  }
  return moves;
}

std::vector<Move> Placement::remove_server(std::uint64_t id) {
  const auto found = std::find(servers_.begin(), servers_.end(), id);
  check(found != servers_.end(), "a server leaves that is not there");
  check(servers_.size() > 1, "the last server leaves");
  const int leaver = static_cast<int>(found - servers_.begin());
  const std::vector<int> left = blocks_of(leaver);
  servers_.erase(found);
  server_bytes_.erase(server_bytes_.begin() + leaver);
  for (int& server : owners_) {
    server = server == leaver ? kNobody : server - (server > leaver ? 1 : 0);
  }
  build_ring();
  std::vector<Move> moves;
  for (const int block : left) {
    give(block, choose_owner(block));
    moves.push_back({block, id, servers_[static_cast<std::size_t>(owner(block))]});
  }
  return moves;
}

}  // namespace distbelief
