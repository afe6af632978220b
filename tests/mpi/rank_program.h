#pragma once

// What the programs that tests start under mpirun have in common.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "transport/mpi/mpi_fabric.h"

namespace distbelief {

/// Long enough that only a hang reaches it, and shorter than the driver's patience.
inline Clock::time_point far_away() { return Clock::now() + std::chrono::seconds(60); }

/// One write for one line, so that lines of several ranks do not mix.
inline void say(const std::string& line) {
  const std::string whole = line + "\n";
  [[maybe_unused]] const auto written = ::write(STDOUT_FILENO, whole.data(), whole.size());
}

/// The first thing that a rank says: lets the driver find the process, and the files that MPI makes for the job.
inline void introduce(const MpiWorld& world) {
  const char* job = std::getenv("OMPI_MCA_ess_base_jobid");
  say(fmt::format("rank {} of {} pid {} job {:x} {}", world.rank().value, world.size(), ::getpid(),
                  job == nullptr ? 0UL : std::strtoul(job, nullptr, 10), world.library()));
}

/// Failures of this rank only: of the rest, rank 0's listing is enough.
class FailureLines : public testing::EmptyTestEventListener {
 public:
  explicit FailureLines(Rank rank) : rank_(rank) {}
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed()) {
      say(fmt::format("rank {} FAILED {}:{}: {}", rank_.value, result.file_name() == nullptr ? "" : result.file_name(),
                      result.line_number(), result.summary()));
    }
  }

 private:
  Rank rank_;
};

}  // namespace distbelief
