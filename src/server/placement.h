#pragma once

#include <cstdint>
#include <vector>

#include "server/block_map.h"

namespace distbelief {

/// A block that changes hands between two servers, given by their ids.
struct Move {
  int block = 0;
  std::uint64_t from = 0;
  std::uint64_t to = 0;

  friend bool operator==(const Move&, const Move&) = default;
};

/// Which server owns each block. The table of owners is the truth; a consistent-hash ring only orders the candidates
/// for a block: each server stands at many points of the ring (virtual nodes), each block at one, and a block's
/// candidates are the servers met from there on. A block goes to the first that has room, as in consistent hashing with
/// bounded loads (Mirrokni, Thorup and Zadimoghaddam 2018), loads counted in bytes.
///
/// No server owns more than 1.1 times the mean, at the start and after changes; or, where blocks are large beside it,
/// than the mean and two blocks. The owners after a change depend on those before it: who was not there must be told.
///
/// Servers have ids of their own, unique and stable; the owners follow from the ids, on every machine and in whatever
/// order they are given. An index is a place in servers(). One thread changes it; reading is thread-safe.
class Placement {
 public:
  Placement(const BlockMap& map, std::vector<std::uint64_t> servers);

  /// Ids, in the order they were given; who joins is last, and who leaves makes way for those behind.
  const std::vector<std::uint64_t>& servers() const { return servers_; }
  /// The index of the server that owns the block.
  int owner(int block) const;
  /// In order. Of few blocks some servers own none.
  std::vector<int> blocks_of(int server) const;
  std::int64_t bytes_of(int server) const;

  /// The joiner takes blocks from whoever is the fullest until it owns the mean, those first that the ring puts nearest
  /// before it; nothing else moves.
  std::vector<Move> add_server(std::uint64_t id);
  /// The leaver's blocks go to their next candidates with room; nothing else moves. It is not the last server.
  std::vector<Move> remove_server(std::uint64_t id);

 private:
  struct RingPoint {
    std::uint64_t place = 0;
    int server = 0;
  };

  std::int64_t percent_of_mean(std::int64_t percent) const;
  void build_ring();
  int choose_owner(int block) const;
  int fullest() const;
  std::vector<int> in_order_of_claim(int server) const;
  void give(int block, int server);

  std::vector<std::int64_t> block_bytes_;
  std::int64_t all_bytes_ = 0;
  std::vector<std::uint64_t> servers_;
  std::vector<RingPoint> ring_;             // by place
  std::vector<int> owners_;                 // of each block, or kNobody
  std::vector<std::int64_t> server_bytes_;  // of each server
};

}  // namespace distbelief
