#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "plan/grid.h"
#include "transport/fabric.h"

namespace distbelief {

/// Of a worker that has come, and has no part of the network yet.
inline constexpr int kNoPart = -1;

/// Of a worker that lacks nothing of a step, or of a common point, that others may have made.
inline constexpr std::int64_t kNothingPrepared = -1;

/// Where a worker stands that has a part of a network, when others are lost. What counts is the last point from which
/// it could go on: after a step, or, where copies are together now and then only, when they last were.
struct PartStand {
  Rank rank = {};
  bool knows = false;                        ///< its part and the strategy's state are whole, as after `step`
  std::int64_t step = 0;                     ///< that was made
  std::uint64_t epoch = 0;                   ///< that has begun
  std::int64_t prepared = kNothingPrepared;  ///< a later step, of which it lacks nothing
  int part = 0;                              ///< that it has: stage by stage; or kNoPart
  int copy = 0;                              ///< of the network that it was in
  std::uint32_t generation = 0;              ///< how often the network was cut anew before
  std::uint64_t ending = 0;                  ///< as the run says
  bool leaves = false;                       ///< the others shall do without it, if they can

  bool has(std::int64_t of) const { return knows && (step == of || prepared == of); }
};

/// Who goes on with which part.
struct Regrid {
  std::int64_t step = 0;      ///< after which all of them go on
  std::size_t source = 0;     ///< of the stands, the first of those furthest on
  int copies = 0;             ///< that are whole
  std::vector<Rank> members;  ///< of these, as a Grid numbers them
  /// Those who leave, and those of no use, as nobody has the other parts of their copies or fewer copies are wanted.
  std::vector<Rank> spare;
  /// Of each part that some of the members get: who has it as after `step`, who may be one that leaves, and they.
  std::map<int, std::vector<Rank>> handovers;

  /// Whether that one gets its part's state from another.
  bool gets_state(Rank rank) const;
};

/// As many whole copies as the holders of each part allow, with those who came in the places that are free, and at most
/// `most_copies`, if that is not 0: copies first that are whole as they are, then what is left of several. Who holds a
/// part, but not as after the step, or without the strategy's state, gets it from one who has. Of those who are to
/// leave as many stay, the first of them, as it takes to have a copy. A function of the stands alone, which are in
/// order of rank. Nothing when some part is nobody's as after that step: the network must come from a checkpoint.
std::optional<Regrid> regrid(int parts, std::vector<PartStand> stands, int most_copies = 0);

}  // namespace distbelief
