#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace distbelief {

/// Which servers hold each shelf: the blocks that Placement gave one server at the start, and which move together from
/// then on. A shelf's primary answers for it, its backup repeats what the primary does. When a server is lost its
/// backups become primaries, and others become backups of what has one holder left: on another host where there is one,
/// then who holds the fewest, then the next around the ring. A function of the servers at the start and of who was lost
/// in which order, so that every process has the same table without a word. Plain data; reading is thread-safe.
class Ownership {
 public:
  static constexpr int kNobody = -1;
  struct Holders {
    int primary = kNobody;  ///< kNobody: all that it held is lost
    int backup = kNobody;
    friend bool operator==(const Holders&, const Holders&) = default;
  };

  /// Server i begins as the primary of shelf i. `hosts` says where each server is; `copies` is 1 or 2.
  Ownership(std::vector<std::string> hosts, int copies);

  int servers() const { return static_cast<int>(hosts_.size()); }
  const Holders& of(int shelf) const { return holders_.at(static_cast<std::size_t>(shelf)); }
  /// Who leads is who answers for the first shelf, whose backup knows all that a leader knows.
  int leader() const { return of(0).primary; }
  bool lives(int server) const { return lives_.at(static_cast<std::size_t>(server)); }
  /// How many servers were lost: tables of two processes with the same number are equal.
  std::uint64_t losses() const { return losses_; }

  /// Nothing changes when it was lost before.
  void lose(int server);

 private:
  int choose_backup(int primary) const;
  int held_by(int server) const;

  std::vector<std::string> hosts_;
  int copies_;
  std::vector<bool> lives_;
  std::vector<Holders> holders_;
  std::uint64_t losses_ = 0;
};

}  // namespace distbelief
