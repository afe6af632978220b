#include "cluster/coordinator.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <condition_variable>
#include <csignal>
#include <ctime>
#include <map>
#include <mutex>

#include "base/clock.h"
#include "base/error.h"
#include "cluster/coordinator_state.h"
#include "cluster/job_file.h"
#include "transport/socket/message_server.h"

namespace distbelief {
namespace {

constexpr int kMostStrangersTold = 200;  // lines of a log that anybody could make grow

std::string utc_now() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

constexpr std::string_view kStateName = "coordinator.state";
constexpr std::chrono::seconds kBetweenWrites{1};  // of a store that does not take them

/// What the coordinator before wrote down, if this one takes its place.
std::optional<control::SavedJob> read_saved(Store& store, const CoordinatorOptions& options) {
  const std::optional<std::string> bytes = options.comes_back ? store.read(kStateName) : std::nullopt;
  if (!bytes) {
    return std::nullopt;
  }
  control::SavedJob job;
  if (!job.ParseFromString(*bytes)) {
    throw FileError(fmt::format("{}: expected what a coordinator wrote down", kStateName));
  }
  return job;
}

/// With a token, and with what must not change when one coordinator takes the place of another.
JobRules settled(JobRules rules, const std::optional<control::SavedJob>& before) {
  rules.made_at = std::chrono::milliseconds(std::llround(wall_clock() * 1000));
  if (before) {
    rules.token = before->token();
    rules.configuration = before->configuration();
    rules.invitation = before->invitation();
  } else if (rules.token.empty()) {
    rules.token = make_token();
  }
  return rules;
}

MessageServer::Options server_options(const CoordinatorOptions& options) {
  MessageServer::Options server;
  server.limits.longest_message = kMaxControlBytes;
  server.limits.until_trust = options.stranger_limit;
  server.limits.tick = std::chrono::milliseconds(25);  // a new view follows a death by that much
  server.tls = options.tls;
  return server;
}

}  // namespace

/// All functions of the handler run on the server's thread, and so does the state.
class Coordinator::Loop : public MessageServer::Handler {
 public:
  explicit Loop(CoordinatorOptions options)
      : options_(std::move(options)),
        store_(options_.store ? options_.store : std::make_shared<FileStore>(options_.run_folder)),
        before_(read_saved(*store_, options_)),
        rules_(settled(options_.rules, before_)),
        state_(rules_, store_->begin_term(), Clock::now(), before_ ? &*before_ : nullptr),
        first_saved_(state_.saved()),
        server_(std::make_unique<MessageServer>(
            before_ && !options_.elsewhere ? Address::parse(before_->listen()) : options_.listen, *this,
            server_options(options_))) {
    address_ = server_->address();
    listen_ = address_.text();
    std::vector<Address> alternatives;
    if (address_.kind == Address::Kind::tcp) {
      for (const std::string& host : options_.advertised_hosts) {
        alternatives.push_back(Address::tcp(host, address_.port));
      }
    }
    if (!alternatives.empty()) {
      address_ = alternatives.front();
      alternatives.erase(alternatives.begin());
    }
    if (!write_down(first_saved_)) {  // before anybody can find it
      throw Error(store_->why_not());
    }
    if (!unwritten_.empty() && options_.log) {
      options_.log(unwritten_);
    }
    const JobFile found = {.address = address_,
                           .alternatives = std::move(alternatives),
                           .token = rules_.token,
                           .pid = ::getpid(),
                           .term = state_.term(),
                           .started = utc_now()};
    store_->publish(job_file_text(found));
    if (!options_.run_folder.empty()) {
      write_job_file(options_.run_folder, found);
    }
    ready_server_ = server_.get();
  }

  ~Loop() override {
    remove_job_file();
    server_.reset();  // before what its thread uses
    if (ending_ && !ending_->deposed) {
      store_->remove(kStateName);
    }
  }

  void opened(ConnectionId id, const std::string& peer) override { strangers_[id] = peer; }

  void message(ConnectionId id, Message message) override {
    if (!may_act()) {
      return;
    }
    auto decoded = decode_control(message);
    if (decoded.ok()) {
      state_.received(id, std::move(decoded.message()), Clock::now());
    } else {
      state_.received_garbage(id, decoded.reason(), Clock::now());
    }
    carry_out();
  }

  void closed(ConnectionId id, const std::string& reason) override {
    if (const auto stranger = strangers_.extract(id); !stranger.empty() && strangers_told_ < kMostStrangersTold) {
      ++strangers_told_;
      if (options_.log) {
        options_.log(fmt::format("closed the connection from {}, which had not joined: {}", stranger.mapped(), reason));
      }
    }
    if (may_act()) {
      state_.closed(id, Clock::now());
      carry_out();
    }
  }

  void tick(Clock::time_point /*now*/) override {
    std::optional<std::string> reason;
    {
      const std::scoped_lock lock(mutex_);
      reason = std::exchange(stop_reason_, std::nullopt);
      result_ = ending_;
    }
    if (ending_) {
      ended_.notify_all();
    }
    if (!may_act()) {
      return;
    }
    if (reason) {
      state_.stop(*reason, Clock::now());
    }
    if (ready_server_ != nullptr && !look_after_store()) {
      return;
    }
    state_.tick(Clock::now());
    carry_out();
  }

  void stop(const std::string& reason) {
    const std::scoped_lock lock(mutex_);
    stop_reason_ = reason;
  }

  std::optional<JobResult> wait(Clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    ended_.wait_until(lock, deadline, [&] { return result_.has_value(); });
    return result_;
  }

  const Address& address() const { return address_; }
  const std::string& token() const { return rules_.token; }

 private:
  /// False for good: what members said since is not answered, and they find out that there is another coordinator.
  bool may_act() {
    if (ready_server_ == nullptr) {
      return true;  // the constructor has not come back; nothing is done before
    }
    if (!(ending_ && ending_->deposed) && !store_->may_act()) {
      depose();
    }
    return !(ending_ && ending_->deposed);
  }

  void depose() { ending_ = JobResult{.reason = store_->why_not(), .deposed = true}; }

  void carry_out() {
    MessageServer* server = ready_server_;
    if (server == nullptr) {
      return;  // the constructor has not come back with the server; what is to be done stays with the state
    }
    SharedControlMessage last;
    Message encoded;
    for (CoordinatorState::Action& action : state_.take_actions()) {
      if (auto* persisted = std::get_if<CoordinatorState::Persist>(&action)) {
        if (!persist(std::move(persisted->job))) {
          return;  // nothing of what was decided is done
        }
      } else if (auto* send = std::get_if<CoordinatorState::Send>(&action)) {
        if (send->message != last) {  // a view goes to everybody, and is encoded once
          encoded = encode_control(*send->message);
          last = send->message;
        }
        server->send(send->to, encoded);
      } else if (auto* trust = std::get_if<CoordinatorState::Trust>(&action)) {
        strangers_.erase(trust->connection);
        server->trust(trust->connection);
      } else if (auto* close = std::get_if<CoordinatorState::Close>(&action)) {
        server->close(close->connection, close->reason);
      } else if (auto* log = std::get_if<CoordinatorState::Log>(&action)) {
        if (options_.log) {
          options_.log(log->text);
        }
      } else if (std::holds_alternative<CoordinatorState::Die>(action)) {
        ::kill(::getpid(), SIGKILL);
      } else if (auto* end = std::get_if<CoordinatorState::End>(&action)) {
        // Told at the next tick: what was sent just now must be with the server before somebody destroys it.
        ending_ = JobResult{end->succeeded, end->reason};
      }
    }
  }

  /// False when this coordinator must not act any more. A disk that is full, or a store that is out of reach, must not
  /// end a job that runs: it is told, and tried again.
  bool write_down(control::SavedJob job) {
    job.set_listen(listen_);
    try {
      unwritten_.clear();
      return store_->write(kStateName, job.SerializeAsString(), Store::Outlives::the_process);
    } catch (const FileError& error) {
      unwritten_ = fmt::format("{}; if the coordinator dies now, the job ends", error.what());
      write_again_ = Clock::now() + kBetweenWrites;
      return true;
    }
  }

  /// What could not be written is tried again, and that nothing could be is told before there is something. False as
  /// write_down().
  bool look_after_store() {
    if (Clock::now() < write_again_ || (unwritten_.empty() && store_->trouble().empty())) {
      return true;
    }
    return persist(state_.saved());
  }

  bool persist(control::SavedJob job) {
    const bool failed_before = !unwritten_.empty();
    if (!write_down(std::move(job))) {
      depose();
      return false;
    }
    if (failed_before && unwritten_.empty()) {
      say("what the coordinator knows is written down again");
    } else if (!failed_before && !unwritten_.empty()) {
      say(unwritten_);
    }
    return true;
  }

  /// To the log, and to people.
  void say(const std::string& text) {
    if (options_.log) {
      options_.log(text);
    }
    state_.announce(text);
  }

  /// Its own: a coordinator after it may have written another.
  void remove_job_file() {
    if (options_.run_folder.empty()) {
      return;
    }
    try {
      if (read_job_file(options_.run_folder).term != state_.term()) {
        return;
      }
    } catch (const FileError&) {
      return;  // the launcher was faster
    }
    std::error_code ignored;
    std::filesystem::remove(job_file_path(options_.run_folder), ignored);
  }

  const CoordinatorOptions options_;
  const std::shared_ptr<Store> store_;
  const std::optional<control::SavedJob> before_;
  const JobRules rules_;
  Address address_;
  std::string listen_;
  // The server's thread only, once ready_server_ is set.
  std::string unwritten_;               // why what was decided last is not in the store; empty when it is
  Clock::time_point write_again_ = {};  // not before

  // The server's thread only, once there is one.
  CoordinatorState state_;
  const control::SavedJob first_saved_;  // as long as that thread does nothing
  std::optional<JobResult> ending_;
  std::map<ConnectionId, std::string> strangers_;  // who they are, as far as is known
  int strangers_told_ = 0;

  // What the server's thread uses: server_ itself changes while that thread still runs, at the beginning and the end.
  std::atomic<MessageServer*> ready_server_ = nullptr;

  std::mutex mutex_;
  std::condition_variable ended_;
  std::optional<JobResult> result_;         // guarded by mutex_
  std::optional<std::string> stop_reason_;  // guarded by mutex_

  std::unique_ptr<MessageServer> server_;
};

std::filesystem::path coordinator_state_path(const std::filesystem::path& run_folder) {
  return run_folder / kStateName;
}

Coordinator::Coordinator(CoordinatorOptions options) : loop_(std::make_unique<Loop>(std::move(options))) {}
Coordinator::~Coordinator() = default;
const Address& Coordinator::address() const { return loop_->address(); }
const std::string& Coordinator::token() const { return loop_->token(); }
void Coordinator::stop(const std::string& reason) { loop_->stop(reason); }
std::optional<JobResult> Coordinator::wait(Clock::time_point deadline) { return loop_->wait(deadline); }

JobResult run_coordinator(CoordinatorOptions options, const std::stop_token& stop) {
  Coordinator coordinator(std::move(options));
  const std::stop_callback when_stopped(stop, [&] { coordinator.stop("the coordinator was told to stop"); });
  for (;;) {
    if (auto result = coordinator.wait(Clock::now() + std::chrono::seconds(10))) {
      return *result;
    }
  }
}

}  // namespace distbelief
