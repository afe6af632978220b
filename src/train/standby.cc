// Processes that come to a job when it runs, and those of them that wait: until a worker dies, or, where a network is
// cut, until there are enough for one more copy of it. A standby is known to the coordinator, but is no worker: no
// view, share or audit has it. When it is called it joins once more, as a worker like any that comes late, with its
// data opened already.
#include <fmt/format.h>

#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/print.h"
#include "cluster/member.h"
#include "train/job_store.h"
#include "train/job_worker.h"
#include "train/join_request.h"

namespace distbelief {
namespace {

constexpr std::chrono::seconds kStandbyJoinPatience{60};
/// For what is left of a copy: the coordinator waits no longer for it.
constexpr std::chrono::seconds kAgainPatience{20};
constexpr std::chrono::seconds kStandbyLeavePatience{5};
constexpr std::chrono::milliseconds kBetweenLooksForSignals{100};

/// What a standby hears, from the member's thread to the one that waits.
class StandbyCalls {
 public:
  enum class Call : std::uint8_t { none, take_over, end };

  void operator()(const MemberEvent& event) {
    const auto* order = std::get_if<Order>(&event);
    const bool is_over = std::holds_alternative<JobEnded>(event) || std::holds_alternative<CoordinatorLost>(event) ||
                         (order != nullptr && order->what == Order::What::stop);
    const bool is_called = order != nullptr && order->what == Order::What::take_over;
    const std::scoped_lock lock(mutex_);
    if (const auto* notice = std::get_if<Notice>(&event); notice != nullptr && notice->member != 0) {
      notices_.push_back(*notice);
    }
    if (is_called && call_ == Call::none) {
      call_ = Call::take_over;
      rank_ = order->rank;
    }
    call_ = is_over ? Call::end : call_;
    came_.notify_all();
  }
  /// With the rank it is called to have.
  std::pair<Call, Rank> wait(Clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    came_.wait_until(lock, deadline, [&] { return call_ != Call::none; });
    return {call_, rank_};
  }
  /// What members were said to do, since the last call.
  std::vector<Notice> take_notices() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(notices_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  Call call_ = Call::none;  // these three: guarded by mutex_
  Rank rank_ = {};
  std::vector<Notice> notices_;
};

/// What became of one that waited.
struct Waited {
  bool called = false;
  Rank rank = {};            ///< it is to have; -1: any
  std::string refusal = {};  ///< why it could not even wait
};

Waited wait_to_be_called(const JobAccess& job, const WorkerOptions& options, bool grows,
                         std::chrono::seconds join_patience, const std::function<bool()>& stop_requested) {
  StandbyCalls calls;
  const auto is_to_end = [&] { return stop_requested() || (options.leave_requested && options.leave_requested()); };
  JoinRequest request = join_request(job.config, options.version, job.token, Role::standby);
  request.configuration = configuration_digest(job.config);
  request.host = options.host.empty() ? request.host : options.host;
  request.launch = options.launch;
  request.grows = grows;
  request.on_event = [&calls](const MemberEvent& event) { calls(event); };
  request.progress = [] { return Progress{.operation = "waiting for a worker's death"}; };
  request.gives_up = is_to_end;
  const Member::Joined joined = Member::join(job.address, std::move(request), Clock::now() + join_patience);
  if (joined.member == nullptr) {
    return {.refusal = joined.reason};
  }
  Member& member = *joined.member;
  using Call = StandbyCalls::Call;
  std::pair<Call, Rank> call = {Call::none, Rank{}};
  while (call.first == Call::none && !is_to_end()) {
    call = calls.wait(Clock::now() + kBetweenLooksForSignals);
    for (const Notice& notice : calls.take_notices()) {
      if (options.waits && notice.member == member.self().id) {
        options.waits(notice.text);
      }
    }
  }
  const bool called = call.first == Call::take_over;
  member.leave(true, called ? kTakesOver : "was not needed", Clock::now() + kStandbyLeavePatience);
  return {.called = called, .rank = call.second};
}

}  // namespace

JobAccess access_to_running(const std::filesystem::path& folder, const std::string& version) {
  JobAccess access = {.address = {}, .token = {}, .config = config_of_run(folder)};
  const JobFile job = running_job(folder, access.config);
  access.address = job.address;
  access.token = job.token;
  JoinRequest request = join_request(access.config, version, job.token, Role::observer);
  const Clock::time_point deadline = Clock::now() + kStandbyJoinPatience;
  const Member::Joined joined = Member::join(job.address, std::move(request), deadline);
  if (joined.member == nullptr) {
    throw Error("cannot join the job: " + joined.reason);
  }
  const std::optional<std::string> text = joined.member->request_configuration(deadline);
  if (!text) {
    throw Error("cannot join the job: its coordinator does not answer");
  }
  joined.member->leave(true, "joins as a worker", Clock::now() + kStandbyLeavePatience);
  access.config = RunConfig();
  apply_config_text(access.config, JobInvitation::parse(*text).config, "the job's run.yaml");
  return access;
}

WorkerResult join_late(const JobAccess& job, const WorkerOptions& options,
                       const std::function<bool()>& stop_requested) {
  WorkerOptions worker = options;
  worker.late = true;
  if (const bool grows = !options.standby && !options.as_server && takes_copies(job.config); options.standby || grows) {
    worker.opened = Trainer::open(job.config);
    const Waited waited = wait_to_be_called(job, options, grows, kStandbyJoinPatience, stop_requested);
    if (!waited.refusal.empty()) {
      throw Error("cannot join the job: " + waited.refusal);
    }
    if (!waited.called) {
      return {};
    }
    worker.rank = waited.rank.value;
  }
  return work_in_job(job, worker, {}, nullptr, stop_requested);
}

WorkerResult work_again(const JobAccess& job, const WorkerOptions& options, WorkerResult before, RunObserver* show,
                        const std::function<bool()>& stop_requested) {
  WorkerOptions worker = options;
  worker.late = true;
  worker.opened = nullptr;  // when it is called: others wait for it to join, not for its data
  const bool leave_at_once = before.leave_at_once;
  while (before.comes_again) {
    const Waited waited = wait_to_be_called(job, options, false, kAgainPatience, stop_requested);
    before = {.left = true, .end = "the job has no more use for it"};  // what comes of that is for others to say
    if (!waited.called) {
      break;
    }
    worker.rank = waited.rank.value;
    try {
      before = work_once(job, worker, {}, show, stop_requested);
    } catch (const Error& error) {  // as when the job ends at that moment
      print_error("distbelief: {}\n", error.what());
    }
  }
  before.leave_at_once = leave_at_once;
  return before;
}

}  // namespace distbelief
