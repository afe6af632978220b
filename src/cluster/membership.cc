#include "cluster/membership.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace distbelief {

std::string_view role_name(Role role) {
  switch (role) {
    case Role::any:
      return "process";
    case Role::worker:
      return "worker";
    case Role::server:
      return "server";
    case Role::launcher:
      return "launcher";
    case Role::observer:
      return "observer";
    case Role::standby:
      return "standby";
  }
  check(false, "a role without a name");
  return {};
}

std::string describe(const MemberInfo& member) {
  const std::string_view role = role_name(member.role);
  return member.rank.value < 0 ? fmt::format("{} (pid {} on {})", role, member.pid, member.host)
                               : fmt::format("{} {} (pid {} on {})", role, member.rank.value, member.pid, member.host);
}

const MemberInfo* View::find(Rank rank) const {
  const auto found = std::lower_bound(members.begin(), members.end(), rank,
                                      [](const MemberInfo& member, Rank wanted) { return member.rank < wanted; });
  return found != members.end() && found->rank == rank ? &*found : nullptr;
}

}  // namespace distbelief
