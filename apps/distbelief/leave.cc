#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "commands.h"
#include "observer.h"

namespace distbelief {
namespace {

constexpr std::chrono::seconds kOrderPatience{10};
constexpr std::chrono::minutes kGonePatience{2};

struct LeaveArguments {
  JobArguments job;
  int member = 0;
};

/// What the coordinator says to an order, from the member's thread to the command's.
class Answer {
 public:
  void operator()(const MemberEvent& event) {
    if (const auto* answer = std::get_if<OrderAnswer>(&event)) {
      const std::scoped_lock lock(mutex_);
      answer_ = *answer;
      came_.notify_all();
    }
  }
  std::optional<OrderAnswer> wait(Clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    came_.wait_until(lock, deadline, [&] { return answer_.has_value(); });
    return answer_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::optional<OrderAnswer> answer_;  // guarded by mutex_
};

/// The first view that this member is not in; nothing at the deadline, or when the job has ended.
std::optional<View> wait_until_gone(const Member& observer, Rank rank, Clock::time_point deadline) {
  std::optional<View> view = observer.wait_for_view(1, deadline);
  while (view && view->find(rank) != nullptr) {
    view = observer.wait_for_view(view->number + 1, deadline);
  }
  return view;
}

}  // namespace

void add_leave_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("leave", "Take a worker out of a running job, which goes on without it");
  command->group("Jobs");
  const auto arguments = std::make_shared<LeaveArguments>();  // shared with the callback, which outlives this function
  add_job_arguments(*command, arguments->job);
  command->add_option("member", arguments->member, "the worker's number, as 'distbelief status' shows it")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber)
      ->required();
  command->footer(
      "The worker finishes what it has begun to push and ends; samples that it had leased and not trained on go to\n"
      "the others, and the audit stays exact. SIGTERM to the worker's process does the same. For jobs with parameter\n"
      "servers, whose workers do without each other; a worker that holds part of a network takes its mates along.\n"
      "\n"
      "Examples:\n"
      "  distbelief leave runs/team 2\n"
      "  distbelief leave alpha:40123 2 --token-file token");
  command->callback([arguments] {
    Answer answer;
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
    fmt::print("{}\n", said->text);
    std::fflush(stdout);
    const std::optional<View> view = wait_until_gone(*observer, rank, Clock::now() + kGonePatience);
    if (!view) {
      throw Error(fmt::format("{}: it has not left yet", arguments->job.job));
    }
    fmt::print("it has left: {}\n", view->reason);
    observer->leave(true, "has seen it", Clock::now() + kOrderPatience);
  });
}

}  // namespace distbelief
