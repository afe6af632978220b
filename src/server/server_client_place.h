#pragma once

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "server/pending_transfer.h"
#include "server/server_client.h"

// Of ServerClient, for its sources only.

namespace distbelief {

/// One channel to one server. While it is idle or answered it belongs to the worker's thread, otherwise to the
/// fabric's.
class ServerClient::Asked {
 public:
  /// stranded: whoever was asked is lost, and it is not known yet who is to be asked instead; here: this process is,
  /// by the thread that waits.
  enum class State : std::uint8_t { idle, submitted, head, body, stranded, here, answered };

  /// With `may_move` what a lost server was asked waits to be asked of another.
  Asked(Rank server, std::uint32_t view, ClientRole role, Channel channel, std::size_t request_most,
        std::size_t reply_most, bool may_move)
      : server_(server),
        view_(view),
        may_move_(may_move),
        role_(role),
        channel_(channel),
        body_(std::max(request_most, kMostWords)),
        reply_body_(std::max(reply_most, kMostWords)) {}

  RequestHead request;
  std::vector<std::uint64_t> versions;  ///< that the request named
  ReplyHead reply;
  Outcome outcome;
  std::uint64_t told_pushed = 0;  ///< these two: bytes, as the last reply that was waited for had them
  std::uint64_t told_fetched = 0;

  Buffer& body() { return body_; }
  /// What the body holds is lost. While it is idle.
  void make_room(std::size_t bytes) {
    if (body_.bytes() < bytes) {
      body_ = Buffer(bytes);
    }
  }
  const Buffer& reply_body() const { return reply_body_; }
  bool answered() const { return state_.load(std::memory_order_acquire) == State::answered; }
  bool open() const { return state_.load(std::memory_order_relaxed) != State::idle; }
  void end() { state_.store(State::idle, std::memory_order_relaxed); }

  void submit() {
    outcome = {};
    reply = {};
    state_.store(State::submitted, std::memory_order_release);
  }
  /// Asks a server in this process, and not the other thread.
  template <typename Here>
  ReplyHere begin_here(const Here& here) {
    outcome = {};
    return here(request, body_bytes(), {reply_body_.data(), reply_body_.bytes()});
  }
  void end_here(const ReplyHere& wait_for_reply) {
    reply = wait_for_reply();
    state_.store(has_moved() ? State::stranded : State::answered, std::memory_order_release);
  }

  /// True when something moved.
  bool advance(Fabric& fabric) {
    switch (state_.load(std::memory_order_acquire)) {
      case State::submitted:
        head_in_.receive(fabric, server_, channel_tag(view_, role_, channel_, turn_, Part::reply_head),
                         std::as_writable_bytes(std::span(&reply, 1)));
        head_out_.send(fabric, server_, channel_tag(view_, role_, channel_, turn_, Part::request_head),
                       std::as_bytes(std::span(&request, 1)));
        if (request.body_bytes > 0) {
          body_out_.send(fabric, server_, channel_tag(view_, role_, channel_, turn_, Part::request_body), body_bytes());
        }
        state_.store(State::head, std::memory_order_relaxed);
        return true;
      case State::head:
        if (!head_out_.ended(fabric, outcome) || !body_out_.ended(fabric, outcome) ||
            !head_in_.ended(fabric, outcome)) {
          if (outcome.kind == Outcome::Kind::peer_lost && may_move_) {  // the rest would end alike
            finish(fabric);
            return true;
          }
          return false;
        }
        if (outcome.ok() && reply.body_bytes > reply_body_.bytes()) {
          outcome = {Outcome::Kind::mismatch, server_, "a server sent more than it owns"};
        }
        if (!outcome.ok() || reply.body_bytes == 0) {
          finish(fabric);
          return true;
        }
        body_in_.receive(fabric, server_, channel_tag(view_, role_, channel_, turn_, Part::reply_body),
                         {reply_body_.data(), static_cast<std::size_t>(reply.body_bytes)});
        state_.store(State::body, std::memory_order_relaxed);
        return true;
      case State::body:
        if (!body_in_.ended(fabric, outcome)) {
          return false;
        }
        finish(fabric);
        return true;
      case State::idle:
      case State::stranded:
      case State::here:
      case State::answered:
        return false;
    }
    return false;
  }

  Rank server() const { return server_; }

  // For the fabric's thread.

  bool stranded() const { return state_.load(std::memory_order_acquire) == State::stranded; }
  /// It was answered that another answers for the blocks.
  bool has_moved() const { return may_move_ && outcome.ok() && reply.status == ReplyHead::Status::moved; }
  /// Of that: it is time to ask the same one again, who may not have known better.
  bool may_ask_again() {
    if (!has_moved() || Clock::now() < ask_again_at_) {
      return false;
    }
    ask_again_at_ = Clock::now() + kBetweenQuestions;
    return true;
  }
  /// What is stranded is asked of another, or, with `here`, of this process; what is asked from now on, too.
  void move_to(Rank server, bool here) {
    if (server != server_) {
      turns_[server_.value] = turn_;
      server_ = server;
      turn_ = turns_[server.value];  // each server counts those that it has answered
    }
    outcome = {};
    reply = {};
    state_.store(here ? State::here : State::submitted, std::memory_order_release);
  }
  /// There is nobody to ask.
  void end_stranded() {
    if (outcome.ok()) {
      outcome = {Outcome::Kind::peer_lost, server_, "nobody answers any more for what this server held"};
    }
    state_.store(State::answered, std::memory_order_release);
  }

  /// For the thread that waits.
  bool due_here() const { return state_.load(std::memory_order_acquire) == State::here; }

  bool in_a_message() const {
    const State state = state_.load(std::memory_order_acquire);
    return state == State::body || (state == State::head && body_out_.open());
  }

  void give_up(Fabric& fabric) {
    for (PendingTransfer* transfer : {&head_out_, &body_out_, &head_in_, &body_in_}) {
      transfer->give_up(fabric);
    }
  }

 private:
  static constexpr std::chrono::milliseconds kBetweenQuestions{2};

  std::span<std::byte> body_bytes() const { return {body_.data(), static_cast<std::size_t>(request.body_bytes)}; }

  void finish(Fabric& fabric) {
    ++turn_;
    if (may_move_ && outcome.kind == Outcome::Kind::peer_lost) {
      give_up(fabric);
      state_.store(State::stranded, std::memory_order_relaxed);
      return;
    }
    if (has_moved()) {
      ask_again_at_ = Clock::now() + kBetweenQuestions;
      state_.store(State::stranded, std::memory_order_relaxed);
      return;
    }
    state_.store(State::answered, std::memory_order_release);
  }

  Rank server_;
  const std::uint32_t view_;
  const bool may_move_;
  const ClientRole role_;
  const Channel channel_;
  std::atomic<State> state_ = State::idle;
  std::uint32_t turn_ = 0;
  std::map<int, std::uint32_t> turns_;  ///< of servers that were asked before, by rank
  Clock::time_point ask_again_at_ = {};
  Buffer body_, reply_body_;
  PendingTransfer head_out_, body_out_, head_in_, body_in_;
};

struct ServerClient::Place {
  struct Part {
    Range range;
    bool averaged;
  };
  std::vector<Part> parts;  ///< the server's blocks
  std::size_t floats = 0;
  decltype(Server::here) here;
  std::vector<std::uint64_t> have;  ///< the version of each block that the worker has, all of it
  std::vector<std::uint64_t> seen;  ///< the version of each block that the worker fetched last, all of it or some runs
  Buffer gathered;                  ///< as the body of a push
  bool gathered_is_clear = false;   ///< its numbers are 0 where no added runs are
  std::vector<FloatRun> added_runs;
  std::vector<FloatRun> fetched_runs;        ///< these two: of the fetch on its way, if it is of runs
  std::vector<std::int64_t> fetched_places;  ///< where they begin in the flat space
  std::unique_ptr<Asked> change, read;
  std::atomic<int> moves = 0;  ///< how often another server was found to hold the blocks

  std::size_t versions_bytes() const { return parts.size() * sizeof(std::uint64_t); }
  std::span<std::uint64_t> versions(const Buffer& body) const { return body.as<std::uint64_t>().first(parts.size()); }
  float* numbers(const Buffer& body) const { return reinterpret_cast<float*>(body.data() + versions_bytes()); }
};

}  // namespace distbelief
