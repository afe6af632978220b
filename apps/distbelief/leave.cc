#include <charconv>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/print.h"
#include "commands.h"
#include "observer.h"
#include "order_answer.h"

namespace distbelief {
namespace {

constexpr std::chrono::seconds kOrderPatience{10};
constexpr std::chrono::minutes kGonePatience{2};

struct LeaveArguments {
  JobArguments job;
  int member = 0;
};

int member_number(const std::string& text) {
  int number = -1;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size() || number < 0) {
    throw InputError(fmt::format(
        "member '{}': expected the number N of 'worker N' or 'server N', as 'distbelief status' shows it", text));
  }
  return number;
}

/// The first view that this member is not in; nothing at the deadline, or when the job has ended.
std::optional<View> wait_until_gone(const Member& observer, Rank rank, Clock::time_point deadline) {
  std::optional<View> view = observer.wait_for_view(1, deadline);
  while (view && view->find(rank) != nullptr) {
    view = observer.wait_for_view(view->number + 1, deadline);
  }
  return view;
}

}  // namespace

void add_leave_command(CLI::App& app, const JobPlace& place) {
  CLI::App* command =
      app.add_subcommand("leave", "Take a worker or server out of a running job, which goes on without it");
  command->group("Jobs");
  const auto arguments = std::make_shared<LeaveArguments>();  // shared with the callback, which outlives this function
  add_job_arguments(*command, arguments->job, place);
  command
      ->add_option_function<std::string>(
          "member", [arguments](const std::string& text) { arguments->member = member_number(text); },
          "the number N of 'worker N' or 'server N': its rank in 'distbelief status'")
      ->type_name("N")
      ->required();
  command->footer(
      "The others go on without it, the audit stays exact, and nothing restarts. Where workers make steps or averages\n"
      "together it leaves after a step that all have finished (averaging and gossip: when parameters are next common), "
      "and\n"
      "if it wrote the run's folder the next one does; with parameter servers it finishes what it has begun to push, "
      "and its\n"
      "samples go to others. A worker that holds part of a network takes its mates along, unless somebody waits who "
      "can take\n"
      "its place ('distbelief join', --standby). SIGTERM to the worker's process does the same. The last worker, or "
      "copy\n"
      "of a network, cannot leave.\n"
      "\n"
      "A server, or a worker that has one inside (--servers 0), first hands what it holds over to the others, while\n"
      "training goes on; if it is the one that leads, the next one goes on with the run's folder. The last server\n"
      "cannot leave.\n"
      "\n"
      "Examples:\n"
      "  distbelief leave runs/team 2\n"
      "  distbelief leave alpha:40123 2 --token-file token");
  command->callback([arguments] {
    AnswerInbox answer;
    const std::unique_ptr<Member> observer =
        observe(arguments->job, [&answer](const MemberEvent& event) { answer(event); });
    const Rank rank{arguments->member};
    observer->order({.what = Order::What::leave, .reason = "somebody asked for it", .rank = rank});
    const std::optional<OrderAnswer> said = answer.wait(Clock::now() + kOrderPatience);
    if (!said) {
      throw Error(fmt::format("{}: the coordinator does not answer", arguments->job.job));
    }
    if (!said->accepted) {
      throw InputError(fmt::format("{}: {}", arguments->job.job, said->text));
    }
    print_out("{}\n", said->text);
    std::fflush(stdout);
    const std::optional<View> view = wait_until_gone(*observer, rank, Clock::now() + kGonePatience);
    if (!view) {
      throw Error(fmt::format("{}: it has not left yet", arguments->job.job));
    }
    print_out("it has left: {}\n", view->reason);
    observer->leave(true, "has seen it", Clock::now() + kOrderPatience);
  });
}

}  // namespace distbelief
