#include "train/regrid.h"

#include <algorithm>
#include <tuple>

namespace distbelief {
namespace {

using RanksOfParts = std::map<int, std::vector<Rank>>;

/// How many who came it takes to make so many copies of what is left.
std::size_t places_free(const RanksOfParts& left, int parts, std::size_t copies) {
  std::size_t places = copies * static_cast<std::size_t>(parts);
  for (const auto& [part, ranks] : left) {
    places -= std::min(copies, ranks.size());
  }
  return places;
}

/// Of each part who has it as after that step: the first, of those who stay if there is one.
std::map<int, Rank> givers_of_parts(const std::vector<PartStand>& holders, std::int64_t step) {
  std::map<int, Rank> givers;
  for (const bool leaves : {false, true}) {
    for (const PartStand& holder : holders) {
      if (holder.leaves == leaves && holder.has(step)) {
        givers.emplace(holder.part, holder.rank);
      }
    }
  }
  return givers;
}

/// The same as regrid(), but everybody leaves who is to.
std::optional<Regrid> regrid_of_those_who_stay(int parts, const std::vector<PartStand>& stands, int most_copies) {
  Regrid made;
  std::vector<PartStand> holders;
  std::vector<Rank> came;
  for (std::size_t i = 0; i < stands.size(); ++i) {
    const auto key = [&](std::size_t at) { return std::tuple(stands[at].knows, stands[at].step, stands[at].epoch); };
    made.source = key(i) > key(made.source) ? i : made.source;
    if (stands[i].part != kNoPart) {
      holders.push_back(stands[i]);
    } else if (!stands[i].leaves) {
      came.push_back(stands[i].rank);
    }
  }
  const auto is_of_other_cut = [&](const PartStand& holder) { return holder.generation != holders[0].generation; };
  if (holders.empty() || !stands[made.source].knows || std::ranges::any_of(holders, is_of_other_cut)) {
    return std::nullopt;
  }
  made.step = stands[made.source].step;
  const std::map<int, Rank> givers = givers_of_parts(holders, made.step);
  if (std::ssize(givers) < parts) {
    return std::nullopt;
  }
  // By copy and part; who is a second one there goes to what is left.
  std::map<int, std::map<int, Rank>> copies;
  RanksOfParts left;
  for (const PartStand& stand : holders) {
    if (!stand.leaves && !copies[stand.copy].emplace(stand.part, stand.rank).second) {
      left[stand.part].push_back(stand.rank);
    }
  }
  for (const auto& [number, ranks] : copies) {
    for (const auto& [part, rank] : ranks) {
      if (std::ssize(ranks) == parts) {
        made.members.push_back(rank);
      } else {
        left[part].push_back(rank);
      }
    }
  }
  std::size_t more = 0;
  while (more < stands.size() && places_free(left, parts, more + 1) <= came.size()) {
    ++more;
  }
  auto next = came.begin();
  for (std::size_t copy = 0; copy < more; ++copy) {
    for (int part = 0; part < parts; ++part) {
      const std::vector<Rank>& ranks = left[part];
      made.members.push_back(copy < ranks.size() ? ranks[copy] : *next++);
    }
  }
  made.copies = static_cast<int>(std::ssize(made.members)) / parts;
  if (made.copies == 0) {
    return std::nullopt;
  }
  if (most_copies > 0 && made.copies > most_copies) {
    made.copies = most_copies;
    made.members.resize(static_cast<std::size_t>(most_copies * parts));
  }
  for (std::size_t i = 0; i < made.members.size(); ++i) {
    const auto stand = std::ranges::find(stands, made.members[i], &PartStand::rank);
    if (stand->part != kNoPart && stand->has(made.step)) {
      continue;
    }
    const int part = static_cast<int>(i) % parts;
    std::vector<Rank>& handover = made.handovers[part];
    if (handover.empty()) {
      handover.push_back(givers.at(part));
    }
    handover.push_back(made.members[i]);
  }
  for (const PartStand& stand : stands) {
    if (std::ranges::find(made.members, stand.rank) == made.members.end()) {
      made.spare.push_back(stand.rank);
    }
  }
  return made;
}

}  // namespace

bool Regrid::gets_state(Rank rank) const {
  return std::ranges::any_of(handovers, [rank](const auto& handover) {
    return std::find(handover.second.begin() + 1, handover.second.end(), rank) != handover.second.end();
  });
}

std::optional<Regrid> regrid(int parts, std::vector<PartStand> stands, int most_copies) {
  for (;;) {
    std::optional<Regrid> made = regrid_of_those_who_stay(parts, stands, most_copies);
    const auto leaver = std::ranges::find_if(stands, &PartStand::leaves);
    if (made || leaver == stands.end()) {
      return made;
    }
    leaver->leaves = false;
  }
}

}  // namespace distbelief
