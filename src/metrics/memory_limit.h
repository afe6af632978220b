#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace distbelief {

/// The most that one of `sharers` processes of this machine can take: its share of the machine's memory, or of that of
/// a control group, and no more than ulimit leaves to each. 0: not known.
std::uint64_t memory_of_a_process(int sharers);

/// The least limit of the control groups that a process is in. `cgroups` is the text of its /proc/self/cgroup, `root`
/// where groups are mounted. 0: there is none.
std::uint64_t control_group_limit(std::string_view cgroups, const std::filesystem::path& root);

}  // namespace distbelief
