#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/print.h"
#include "commands.h"
#include "observer.h"
#include "order_answer.h"

namespace distbelief {
namespace {

constexpr std::chrono::seconds kScalePatience{10};
constexpr std::chrono::minutes kChangePatience{2};
constexpr std::chrono::milliseconds kBetweenLooks{100};

constexpr int kMostProcesses = 1'000'000;

struct ScaleArguments {
  JobArguments job;
  int workers = 0;
  int servers = 0;
};

/// The workers and servers of a job, as people are told who comes and goes.
class MemberWatch {
 public:
  explicit MemberWatch(const JobStatus& status) { note(status); }

  /// Prints what is new.
  void show(const JobStatus& status) {
    const std::map<std::uint64_t, MemberStatus> before = std::exchange(members_, {});
    note(status);
    for (const auto& [id, member] : members_) {
      const auto known = before.find(id);
      if (known == before.end()) {
        print_out("{} joined\n", describe(member.member));
      } else if (lives(known->second) && !lives(member)) {
        print_out("{} {}\n", describe(member.member), member.reason);
      }
    }
    std::fflush(stdout);
  }
  int living(Role role) const {
    return static_cast<int>(std::ranges::count_if(
        members_, [&](const auto& entry) { return entry.second.member.role == role && lives(entry.second); }));
  }

 private:
  static bool lives(const MemberStatus& member) {
    return member.state == MemberStatus::State::alive || member.state == MemberStatus::State::reconnecting;
  }
  void note(const JobStatus& status) {
    for (const MemberStatus& member : status.members) {
      if (member.member.role == Role::worker || member.member.role == Role::server) {
        members_.emplace(member.member.id, member);
      }
    }
  }

  std::map<std::uint64_t, MemberStatus> members_;  // by id
};

/// "scale to 4 workers and 2 servers".
std::string wanted_text(const ScaleArguments& wanted) {
  const std::string workers = wanted.workers > 0 ? fmt::format("{} workers", wanted.workers) : "";
  const std::string servers = wanted.servers > 0 ? fmt::format("{} servers", wanted.servers) : "";
  return "scale to " + workers + (workers.empty() || servers.empty() ? "" : " and ") + servers;
}

JobStatus status_of(const std::string& job, Member& observer) {
  std::optional<JobStatus> status = observer.request_status(Clock::now() + kScalePatience);
  if (!status) {
    throw Error(fmt::format("{}: the coordinator does not answer", job));
  }
  return *status;
}

}  // namespace

void add_scale_command(CLI::App& app, const JobPlace& place) {
  CLI::App* command = app.add_subcommand("scale", "Have a running job go on with more or fewer workers and servers");
  command->group("Jobs");
  const auto arguments = std::make_shared<ScaleArguments>();  // shared with the callback, which outlives this function
  add_job_arguments(*command, arguments->job, place);
  command->add_option("--workers", arguments->workers, "so many there shall be")
      ->type_name("N")
      ->check(CLI::Range(1, kMostProcesses));
  command->add_option("--servers", arguments->servers, "so many servers there shall be")
      ->type_name("N")
      ->check(CLI::Range(1, kMostProcesses));
  command->footer(
      "When more are wanted, the 'distbelief train' that runs the job starts them on its machine, and the others take "
      "them\n"
      "in; when fewer, those with the highest numbers leave. Nothing restarts, and the audit stays exact. Where no\n"
      "'distbelief train' can start processes, as under an mpirun of your own or with --hosts, add workers with\n"
      "'distbelief join'.\n"
      "Where a network is cut over workers, whole copies of it come and go.\n"
      "\n"
      "Servers share the parameters out anew while training goes on: a new one takes its part of them from the "
      "others,\n"
      "and one that leaves hands over what it holds first.\n"
      "\n"
      "Examples:\n"
      "  distbelief scale runs/team --workers 4\n"
      "  distbelief scale runs/team --workers 8 --servers 3\n"
      "  distbelief scale alpha:40123 --workers 2 --token-file token");
  command->callback([arguments] {
    if (arguments->workers == 0 && arguments->servers == 0) {
      throw InputError("scale: expected --workers or --servers, or both");
    }
    AnswerInbox answer;
    const std::unique_ptr<Member> observer =
        observe(arguments->job, [&answer](const MemberEvent& event) { answer(event); });
    const std::string& job = arguments->job.job;
    MemberWatch watch(status_of(job, *observer));
    observer->order({.what = Order::What::scale,
                     .reason = wanted_text(*arguments),
                     .workers = arguments->workers,
                     .servers = arguments->servers});
    const std::optional<OrderAnswer> said = answer.wait(Clock::now() + kScalePatience);
    if (!said) {
      throw Error(fmt::format("{}: the coordinator does not answer", job));
    }
    if (!said->accepted) {
      throw InputError(fmt::format("{}: {}", job, said->text));
    }
    print_out("{}\n", said->text);
    std::fflush(stdout);
    const Clock::time_point deadline = Clock::now() + kChangePatience;
    const auto is_there = [&](Role role, int wanted) { return wanted == 0 || watch.living(role) == wanted; };
    while (!is_there(Role::worker, arguments->workers) || !is_there(Role::server, arguments->servers)) {
      if (Clock::now() > deadline) {
        throw Error(fmt::format("{}: the job has {} workers and {} servers so far", job, watch.living(Role::worker),
                                watch.living(Role::server)));
      }
      std::this_thread::sleep_for(kBetweenLooks);
      watch.show(status_of(job, *observer));
    }
    observer->leave(true, "has seen it", Clock::now() + kScalePatience);
  });
}

}  // namespace distbelief
