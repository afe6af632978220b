#pragma once

#include <array>
#include <vector>

#include "tensor/buffer.h"
#include "transport/fabric.h"

namespace distbelief {

/// Members of a job that exchange as one: sums, copies and barriers over a fabric, on which all members call the same
/// functions in the same order with equally long data. A member's number in the group is its position, 0 … size() - 1.
///
/// Sums have the same bits on all members, and are a function of the data, the members' number and their order: neither
/// of the fabric nor of timing. Which algorithm runs is read from a table (collective_table.h).
///
/// When anything fails the outcome names the first member with whom it went wrong, data is undefined, and the group
/// cannot be used again: its members may stand at different places. Form a new one, with a new epoch. One thread.
class Group {
 public:
  /// `fabric` is borrowed. `members` are the ranks in order of position, this process's among them; `epoch` is the same
  /// for all and was not used before with any of them.
  Group(Fabric& fabric, std::vector<Rank> members, std::uint32_t epoch);

  int size() const { return static_cast<int>(members_.size()); }
  int position() const { return position_; }
  const std::vector<Rank>& members() const { return members_; }
  std::uint32_t epoch() const { return epoch_; }
  Fabric& fabric() const { return fabric_; }

  /// A tag for messages between two members that are no part of a collective; none of this group's has it. Who sends
  /// and who receives give it the same number.
  Tag peer_tag(std::uint32_t number) const { return {epoch_ ^ kPeerEpoch, number}; }
  /// What tags of a group with this epoch carry: for Fabric::end_epoch().
  static std::array<std::uint32_t, 2> tag_epochs(std::uint32_t epoch) { return {epoch, epoch ^ kPeerEpoch}; }

  /// Each member's data becomes the sum of all members' data.
  Outcome all_reduce(std::span<float> data, Clock::time_point deadline);
  Outcome all_reduce(std::span<double> data, Clock::time_point deadline);
  /// The part(position) of data becomes the sum of all members' parts; the rest is undefined.
  Outcome reduce_scatter(std::span<float> data, Clock::time_point deadline);
  /// Each member brings its part(position) and gets the others'.
  Outcome all_gather(std::span<float> data, Clock::time_point deadline);
  Outcome all_gather(std::span<std::uint64_t> data, Clock::time_point deadline);
  /// data of `root` becomes the sum; that of the others is undefined.
  Outcome reduce(std::span<float> data, int root, Clock::time_point deadline);
  /// All get root's data.
  Outcome broadcast(std::span<std::byte> data, int root, Clock::time_point deadline);
  /// Returns when all have called it.
  Outcome barrier(Clock::time_point deadline);

  /// The all-reduces by name, for the table's benchmark and tests.
  enum class Algorithm : std::uint8_t { doubling, halving, ring };
  Outcome all_reduce(std::span<float> data, Algorithm algorithm, Clock::time_point deadline);

  /// Which part of `count` elements belongs to a position: nearly equal, in order.
  struct Part {
    std::size_t begin = 0;
    std::size_t size = 0;
  };
  static Part part(std::size_t count, int position, int size);

 private:
  /// What one member does in one step of a collective: `out` goes to `to` while `in` comes from `from`. -1: nobody.
  template <typename T>
  struct Step {
    int to = -1;
    std::span<const T> out = {};
    int from = -1;
    std::span<T> in = {};
    bool add = false;  ///< what comes is added to `in` instead of replacing it
  };
  /// Tags for all steps of one collective; members that sit a step out count it all the same.
  class Tags;

  template <typename T>
  Outcome run(const Step<T>& step, Tags& tags, Clock::time_point deadline);
  template <typename T>
  Outcome sum(std::span<T> data, Algorithm algorithm, Clock::time_point deadline);
  /// Parts go round: each member first sends part `first`, then what it got the step before, added to its own or not.
  template <typename T>
  Outcome ring(std::span<T> data, int first, bool add, Tags& tags, Clock::time_point deadline);
  template <typename T>
  Outcome ring_reduce_scatter(std::span<T> data, Tags& tags, Clock::time_point deadline);
  template <typename T>
  Outcome ring_all_gather(std::span<T> data, Tags& tags, Clock::time_point deadline);
  template <typename T>
  Outcome folded(std::span<T> data, bool halves, Tags& tags, Clock::time_point deadline);
  template <typename T>
  Outcome doubling(std::span<T> data, int number, int among, Tags& tags, Clock::time_point deadline);
  template <typename T>
  Outcome halving(std::span<T> data, int number, int among, Tags& tags, Clock::time_point deadline);

  /// Turns an epoch into that of a group of 256 changes earlier or later: MPI's tags have nine bits for it.
  static constexpr std::uint32_t kPeerEpoch = 0x100;

  Fabric& fabric_;
  const std::vector<Rank> members_;
  const std::uint32_t epoch_;
  int position_ = -1;
  std::uint32_t next_sequence_ = 0;
  Buffer incoming_;  ///< pieces that wait to be added
};

/// Every rank of a fabric, in order: the members of a group of all.
std::vector<Rank> all_ranks(const Fabric& fabric);

}  // namespace distbelief
