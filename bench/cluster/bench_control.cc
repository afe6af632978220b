// bench_control [--members N] [--seconds S]
//
// What the control plane costs: one coordinator, a process of its own, and N members in this process that only
// heartbeat. Prints a row: how long all took to join, messages and bytes a second of each member, the coordinator's
// processor time a second for each member, and how long it took until all others knew that one was killed.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.h"
#include "cluster/child_process.h"
#include "cluster/control_message.h"
#include "cluster/coordinator.h"
#include "cluster/job_file.h"
#include "cluster/member.h"
#include "transport/message_reader.h"

namespace distbelief {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// Seconds of user and system time that a process has used.
double processor_seconds(pid_t pid) {
  std::ifstream in(fmt::format("/proc/{}/stat", pid));
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::istringstream fields(text.substr(text.rfind(')') + 2));  // behind the name, which may hold anything
  std::string skipped;
  for (int field = 3; field < 14; ++field) {
    fields >> skipped;
  }
  double user = 0;
  double system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

std::size_t bytes_on_the_wire(const ControlMessage& message) { return encode_message(encode_control(message)).size(); }

/// A heartbeat in the middle of a run, and its answer.
std::size_t bytes_of_a_heartbeat() {
  control::Heartbeat heartbeat;
  auto& progress = *heartbeat.mutable_progress();
  progress.set_step(123'456);
  progress.set_epoch(12);
  progress.set_samples_per_second(1234.5);
  progress.set_loss(0.123);
  progress.set_operation("all-reduce 17");
  progress.set_operation_seconds(0.01);
  heartbeat.set_received(100);
  control::Heard heard;
  heard.set_term(1);
  heard.set_received(100);
  return bytes_on_the_wire(heartbeat) + bytes_on_the_wire(heard);
}

int coordinate(const std::filesystem::path& folder, int members) {
  CoordinatorOptions options;
  options.rules.workers = members;
  options.rules.has_launcher = true;
  options.run_folder = folder;
  const JobResult result = run_coordinator(options, {});
  return result.succeeded ? 0 : 1;
}

int measure(const std::filesystem::path& program, int count, int length) {
  std::string pattern = (std::filesystem::temp_directory_path() / "bench_control.XXXXXX").string();
  const std::filesystem::path folder = ::mkdtemp(pattern.data());
  ChildProcess coordinator({.name = "coordinator",
                            .argv = {program, "--coordinate", folder, "--members", std::to_string(count)},
                            .environment = {},
                            .log = folder / "log"});
  const auto deadline = Clock::now() + seconds(120);
  while (!std::filesystem::exists(job_file_path(folder)) && Clock::now() < deadline) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  const JobFile job = read_job_file(folder);

  std::atomic<int> told = 0;
  const auto join = [&](Role role, std::uint64_t launch) {
    JoinRequest request;
    request.token = job.token;
    request.host = "localhost";
    request.pid = ::getpid();
    request.role = role;
    request.launch = launch;
    request.on_event = [&told](const MemberEvent& event) { told += std::holds_alternative<MemberLost>(event) ? 1 : 0; };
    request.progress = [] { return Progress{.step = 123'456, .epoch = 12, .operation = "all-reduce 17"}; };
    auto joined = Member::join(job.address, request, deadline);
    if (!joined.member) {
      throw Error("cannot join: " + joined.reason);
    }
    return std::move(joined.member);
  };
  const auto started = Clock::now();
  const auto launcher = join(Role::launcher, 0);
  std::vector<std::unique_ptr<Member>> members;
  for (int i = 0; i < count; ++i) {
    members.push_back(join(Role::worker, static_cast<std::uint64_t>(i) + 1));
  }
  for (const auto& member : members) {
    if (!member->wait_for_view(1, deadline)) {
      throw Error("the first view did not come");
    }
  }
  const double join_seconds = seconds_since(started);

  std::this_thread::sleep_for(seconds(1));
  const double before = processor_seconds(coordinator.pid());
  const auto began = Clock::now();
  std::this_thread::sleep_for(seconds(length));
  const double share = (processor_seconds(coordinator.pid()) - before) / seconds_since(began);

  const auto killed = Clock::now();
  members.back().reset();
  launcher->report_exit({.launch = static_cast<std::uint64_t>(count), .name = "a worker", .signal = 9});
  while (told < count && Clock::now() < deadline) {  // the others and the launcher
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  const double told_seconds = seconds_since(killed);
  for (auto& member : members) {
    if (member) {
      static_cast<void>(member->leave(true, "done", deadline));
    }
  }
  static_cast<void>(coordinator.wait(deadline));
  std::filesystem::remove_all(folder);

  const double beats = 1000.0 / static_cast<double>(JobRules().heartbeat.count());
  std::cout << fmt::format("{:>8} {:>10} {:>16} {:>14} {:>17} {:>21} {:>14}\n", "members", "join s", "messages/s each",
                           "bytes/s each", "coordinator cpu %", "cpu us/s per member", "kill known ms");
  std::cout << fmt::format("{:>8} {:>10.3f} {:>16.1f} {:>14.0f} {:>17.2f} {:>21.1f} {:>14.1f}\n", count, join_seconds,
                           2 * beats, beats * static_cast<double>(bytes_of_a_heartbeat()), share * 100,
                           share * 1e6 / count, told_seconds * 1e3);
  return 0;
}

}  // namespace
}  // namespace distbelief

int main(int argc, char** argv) {
  CLI::App app("What the control plane costs a member");
  int members = 200;
  int length = 10;
  std::string folder;
  app.add_option("--members", members, "how many join")->check(CLI::Range(1, 2000));
  app.add_option("--seconds", length, "how long to measure")->check(CLI::Range(1, 3600));
  app.add_option("--coordinate", folder, "be the coordinator, in this folder");
  CLI11_PARSE(app, argc, argv);
  try {
    return folder.empty() ? distbelief::measure(std::filesystem::canonical("/proc/self/exe"), members, length)
                          : distbelief::coordinate(folder, members);
  } catch (const distbelief::Error& error) {
    std::cerr << "bench_control: " << error.what() << "\n";
    return error.exit_code();
  }
}
