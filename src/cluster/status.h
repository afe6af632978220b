#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/membership.h"

namespace distbelief {

/// One row of a job's status.
struct MemberStatus {
  enum class State : std::uint8_t { alive, reconnecting, left, lost };
  MemberInfo member = {};
  State state = State::alive;
  Progress progress = {};
  double operation_seconds = 0;  ///< how long it has been in progress.operation
  double seconds_since_heard = 0;
  std::string reason = {};  ///< why it left or was lost
  std::string slow = {};    ///< of a straggler: how much slower than the others, and why
};

/// A job as its coordinator sees it.
struct JobStatus {
  std::uint64_t term = 0;
  std::uint64_t view = 0;  ///< 0 before the job began
  double elapsed_seconds = 0;
  std::string phase = {};                  ///< "running"; "waiting for 1 of 3 processes: worker 2"
  std::vector<MemberStatus> members = {};  ///< launcher first, then by rank
};

/// For people: a line about the job, then a table with one line a member, every line ending in a newline. Columns are
/// as wide as they need to be; lag is how many steps a worker is behind the first.
std::string status_text(const JobStatus& status);

}  // namespace distbelief
