#include "cluster/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace distbelief {
namespace {

constexpr std::size_t kColumns = 10;
using Row = std::array<std::string, kColumns>;

constexpr std::array<std::string_view, kColumns> kTitles = {"rank", "role",      "host", "pid",     "state",
                                                            "step", "samples/s", "lag",  "heard s", "operation"};
constexpr std::array<bool, kColumns> kNumbers = {true, false, false, true, false, true, true, true, true, false};

std::string_view state_name(MemberStatus::State state) {
  switch (state) {
    case MemberStatus::State::alive:
      return "alive";
    case MemberStatus::State::reconnecting:
      return "reconnecting";
    case MemberStatus::State::left:
      return "left";
    case MemberStatus::State::lost:
      break;
  }
  return "lost";
}

/// "45 s", "3 min 05 s", "2 h 03 min".
std::string duration_text(double seconds) {
  const auto whole = static_cast<long long>(std::max(0.0, std::floor(seconds)));
  if (whole < 60) {
    return fmt::format("{} s", whole);
  }
  if (whole < 3600) {
    return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  }
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

/// One line, whatever a process called its operation.
std::string printable(std::string text) {
  for (char& letter : text) {
    if (static_cast<unsigned char>(letter) < ' ' || letter == '\x7F') {
      letter = ' ';
    }
  }
  return text;
}

bool gone(const MemberStatus& row) {
  return row.state == MemberStatus::State::left || row.state == MemberStatus::State::lost;
}

std::string operation_of(const MemberStatus& row) {
  if (gone(row)) {
    return row.reason;
  }
  if (row.progress.operation.empty()) {
    return "";
  }
  return fmt::format("{} for {}{}{}", row.progress.operation, duration_text(row.operation_seconds),
                     row.progress.share > 0 ? fmt::format(", {} samples of each batch", row.progress.share) : "",
                     row.slow.empty() ? "" : "; " + row.slow);
}

Row row_of(const MemberStatus& row, std::int64_t first_step) {
  const MemberInfo& member = row.member;
  const bool works = member.role == Role::worker;
  const bool counts = works && !gone(row);
  return {member.rank.value < 0 ? "-" : std::to_string(member.rank.value),
          std::string(role_name(member.role)),
          printable(member.host),
          std::to_string(member.pid),
          std::string(state_name(row.state)),
          works ? std::to_string(row.progress.step) : "-",
          counts ? fmt::format("{:.0f}", row.progress.samples_per_second) : "-",
          counts ? std::to_string(first_step - row.progress.step) : "-",
          gone(row) ? "-" : fmt::format("{:.1f}", row.seconds_since_heard),
          printable(operation_of(row))};
}

}  // namespace

std::string status_text(const JobStatus& status) {
  std::int64_t first_step = 0;
  for (const MemberStatus& row : status.members) {
    if (row.member.role == Role::worker && !gone(row)) {
      first_step = std::max(first_step, row.progress.step);
    }
  }
  std::vector<Row> rows(1);
  std::copy(kTitles.begin(), kTitles.end(), rows[0].begin());
  for (const MemberStatus& row : status.members) {
    rows.push_back(row_of(row, first_step));
  }
  std::array<std::size_t, kColumns> widths{};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < kColumns; ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text = fmt::format("{}; view {}, term {}, {} elapsed\n", printable(status.phase), status.view,
                                 status.term, duration_text(status.elapsed_seconds));
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < kColumns; ++i) {
      const std::string_view gap = i == 0 ? "" : "  ";
      line += kNumbers[i] ? fmt::format("{}{:>{}}", gap, row[i], widths[i])
                          : fmt::format("{}{:<{}}", gap, row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace distbelief
