#include "cluster/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace distbelief {
namespace {

using testing::HasSubstr;

MemberStatus worker(int rank, std::int64_t step) {
  return {.member = {.id = static_cast<std::uint64_t>(rank) + 2,
                     .role = Role::worker,
                     .rank = Rank{rank},
                     .host = "alpha",
                     .pid = 4710 + rank},
          .progress = {.step = step, .samples_per_second = 1234.4, .operation = "all-reduce 17"},
          .operation_seconds = 0.2,
          .seconds_since_heard = 0.31};
}

TEST(StatusText, IsATableWithOneLineAMember) {
  JobStatus status{.term = 1, .view = 2, .elapsed_seconds = 185.9, .phase = "running"};
  status.members.push_back({.member = {.id = 1, .role = Role::launcher, .rank = Rank{-1}, .host = "alpha", .pid = 99}});
  status.members.push_back(worker(0, 1200));
  status.members.push_back(worker(1, 1190));
  status.members.back().progress.operation = "loading";
  status.members.back().operation_seconds = 75;
  status.members.push_back(worker(2, 900));
  status.members.back().state = MemberStatus::State::lost;
  status.members.back().reason = "was killed by signal 9 (SIGKILL)";
  EXPECT_EQ(status_text(status),
            "running; view 2, term 1, 3 min 05 s elapsed\n"
            "rank  role      host    pid  state  step  samples/s  lag  heard s  operation\n"
            "   -  launcher  alpha    99  alive     -          -    -      0.0\n"
            "   0  worker    alpha  4710  alive  1200       1234    0      0.3  all-reduce 17 for 0 s\n"
            "   1  worker    alpha  4711  alive  1190       1234   10      0.3  loading for 1 min 15 s\n"
            "   2  worker    alpha  4712  lost    900          -    -        -  was killed by signal 9 (SIGKILL)\n");
}

TEST(StatusText, BeforeTheBeginningSaysWhoIsAwaited) {
  const JobStatus status{.term = 1, .elapsed_seconds = 7200, .phase = "waiting for 1 of 2 processes: worker 1"};
  EXPECT_EQ(status_text(status),
            "waiting for 1 of 2 processes: worker 1; view 0, term 1, 2 h 00 min elapsed\n"
            "rank  role  host  pid  state  step  samples/s  lag  heard s  operation\n");
}

TEST(StatusText, KeepsItsLinesWhateverAProcessSays) {
  JobStatus status{.phase = "running"};
  status.members.push_back(worker(0, 1));
  status.members.back().progress.operation = "a\nb\x1b[2J";
  EXPECT_THAT(status_text(status), HasSubstr("a b [2J for 0 s\n"));
}

}  // namespace
}  // namespace distbelief
