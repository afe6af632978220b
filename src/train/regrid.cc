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

/// The same as regrid(), but everybody leaves who is to.
std::optional<Regrid> regrid_of_those_who_stay(int parts, const std::vector<PartStand>& stands, int most_copies) {
  Regrid made;
  std::vector<PartStand> holders;
  std::vector<Rank> came;
  for (std::size_t i = 0; i < stands.size(); ++i) {
    const auto key = [&](std::size_t at) { return std::tuple(stands[at].knows, stands[at].step, stands[at].epoch); };
    made.source = key(i) > key(made.source) ? i : made.source;
    if (stands[i].part == kNoPart) {
      if (!stands[i].leaves) {
        came.push_back(stands[i].rank);
      }
    } else {
      holders.push_back(stands[i]);
    }
  }
  const auto is_of_other_cut = [&](const PartStand& holder) { return holder.generation != holders[0].generation; };
  if (holders.empty() || !stands[made.source].knows || std::ranges::any_of(holders, is_of_other_cut)) {
    return std::nullopt;
  }
  made.step = stands[made.source].step;
  // By copy and part; who is a second one there goes to what is left.
  std::map<int, std::map<int, Rank>> copies;
  RanksOfParts left;
  std::map<int, Rank> givers;  // of parts, who leave
  for (const PartStand& stand : holders) {
    const bool gets_there = stand.step == made.step || (stand.step + 1 == made.step && stand.prepared);
    if (!stand.knows || !gets_there) {
      continue;
    }
    if (stand.leaves) {
      givers.emplace(stand.part, stand.rank);
      continue;
    }
    if (!copies[stand.copy].emplace(stand.part, stand.rank).second) {
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
  for (int part = 0; made.members.empty() && part < parts; ++part) {
    if (!left.contains(part) && !givers.contains(part)) {
      return std::nullopt;
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
      if (copy < ranks.size()) {
        made.members.push_back(ranks[copy]);
        continue;
      }
      std::vector<Rank>& handover = made.handovers[part];
      if (handover.empty()) {
        const bool one_stays = part < std::ssize(made.members);
        handover.push_back(one_stays ? made.members[static_cast<std::size_t>(part)] : givers.at(part));
      }
      handover.push_back(*next);
      made.members.push_back(*next++);
    }
  }
  made.copies = static_cast<int>(std::ssize(made.members)) / parts;
  if (made.copies == 0) {
    return std::nullopt;
  }
  if (most_copies > 0 && made.copies > most_copies) {
    made.copies = most_copies;
    made.members.resize(static_cast<std::size_t>(most_copies * parts));
    for (auto& [part, ranks] : made.handovers) {
      std::erase_if(ranks, [&](Rank rank) {
        return rank != ranks.front() && std::ranges::find(made.members, rank) == made.members.end();
      });
    }
    std::erase_if(made.handovers, [](const auto& handover) { return handover.second.size() < 2; });
  }
  for (const PartStand& stand : stands) {
    if (std::ranges::find(made.members, stand.rank) == made.members.end()) {
      made.spare.push_back(stand.rank);
    }
  }
  return made;
}

}  // namespace

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
