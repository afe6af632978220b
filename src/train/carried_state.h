#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "comm/group.h"
#include "exec/replica.h"
#include "strategy/strategy.h"
#include "tensor/buffer.h"

namespace distbelief {

/// A replica's values and its strategy's state, taken out of them, to be put into another strategy of the same kind: of
/// a new group, or of another member. One thread.
class CarriedState {
 public:
  /// A copy of both.
  static CarriedState of(Replica& replica, Strategy& strategy);

  /// Puts into both what they ask for; what a strategy does not keep in its place of the group is left out.
  void give(Replica& replica, Strategy& strategy);

  /// All members get what `root` has. When it fails, what others have is of no use.
  Outcome share(Group& group, int root, Clock::time_point deadline);

 private:
  class Taker;
  class Giver;
  struct Array {
    std::string name;
    Buffer floats;
    std::size_t count = 0;
    std::span<float> values() { return floats.as<float>().first(count); }
  };
  /// Names and sizes of all that there is, and the numbers themselves.
  std::string directory() const;
  void make_room(const std::string& directory);

  std::vector<Array> arrays_;
  std::map<std::string, std::vector<std::uint64_t>> numbers_;
};

/// All members get root's text.
Outcome share_text(Group& group, int root, std::string& text, Clock::time_point deadline);

}  // namespace distbelief
