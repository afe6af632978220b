#include "server/server_port.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <string>

#include "base/parallel.h"
#include "server/pending_transfer.h"
#include "server/request.h"

namespace distbelief {
namespace {

/// Between looks at whether a client in this process waits in vain.
constexpr std::chrono::milliseconds kBetweenLooks{10};

}  // namespace

/// One channel of one client. All but `state` belongs to the fabric's thread, except while it is being answered.
class ServerPort::Served {
 public:
  enum class State : std::uint8_t { head, body, answering, answered, replying, closed };

  Served(const Client& from, Channel channel) : client(from.rank), role_(from.role), channel_(channel) {}

  const Rank client;
  std::atomic<State> state = State::closed;

  void listen(ServerPort& port) {
    head_in_.receive(port.fabric_, client, tag(port, Part::request_head),
                     std::as_writable_bytes(std::span(&request_, 1)));
    state = State::head;
  }

  /// True when something moved.
  bool advance(ServerPort& port) {
    switch (state.load(std::memory_order_acquire)) {
      case State::head:
        return arrived(port, head_in_) && take_head(port);
      case State::body:
        return arrived(port, body_in_) && take_body(port);
      case State::answered:
        if (!port.durable(position_)) {
          return false;
        }
        reply(port);
        return true;
      case State::replying:
        return arrived(port, head_out_) && arrived(port, body_out_) && next(port);
      case State::answering:
      case State::closed:
        return false;
    }
    return false;
  }

  bool is_quick() const {
    return request_.kind == RequestHead::Kind::push || request_.kind == RequestHead::Kind::fetch;
  }
  /// False when it has to wait. On any thread, while it is being answered.
  bool try_answer(ServerPort& port) {
    const std::optional<ReplyHead> reply =
        port.try_answer(request_, in_bytes(), {out_.data(), out_.bytes()}, position_);
    if (reply) {
      reply_ = *reply;
      if (is_quick()) {
        const bool push = request_.kind == RequestHead::Kind::push;
        port.pushed_bytes_ += push ? request_.body_bytes : 0;
        port.fetched_bytes_ += reply_.body_bytes;
      }
      state.store(State::answered, std::memory_order_release);
    }
    return reply.has_value();
  }

  void give_up(Fabric& fabric) {
    for (PendingTransfer* transfer : {&head_in_, &body_in_, &head_out_, &body_out_}) {
      transfer->give_up(fabric);
    }
    state = State::closed;
  }

 private:
  Tag tag(const ServerPort& port, Part part) const {
    return channel_tag(port.options_.view, role_, channel_, turn_, part);
  }
  std::span<std::byte> in_bytes() const { return {in_.data(), static_cast<std::size_t>(request_.body_bytes)}; }

  /// A transfer that failed closes the channel.
  bool arrived(ServerPort& port, PendingTransfer& transfer) {
    Outcome outcome;
    if (!transfer.ended(port.fabric_, outcome)) {
      return false;
    }
    if (!outcome.ok()) {
      give_up(port.fabric_);
    }
    return outcome.ok();
  }

  bool take_head(ServerPort& port) {
    const std::size_t blocks = port.blocks_;
    const std::size_t floats = port.floats_;
    const bool reads = request_.kind == RequestHead::Kind::fetch || request_.kind == RequestHead::Kind::work;
    const bool here = (channel_ == Channel::read) == reads &&
                      (request_.kind < RequestHead::Kind::flush || role_ == ClientRole::leader);
    if (!here || !is_request(request_, blocks, floats)) {
      return refuse(port, fmt::format("rank {} sent a request of kind {} with {} bytes, which is none", client.value,
                                      static_cast<int>(request_.kind), request_.body_bytes));
    }
    if (out_.bytes() == 0) {
      in_ = Buffer(most_body_bytes(blocks, floats));
      out_ = Buffer(most_body_bytes(blocks, floats));
    }
    if (request_.body_bytes == 0) {
      port.hand_over(*this);
      return true;
    }
    state = State::body;
    body_in_.receive(port.fabric_, client, tag(port, Part::request_body), in_bytes());
    return true;
  }

  bool take_body(ServerPort& port) {
    if (port.ordered_ != nullptr && !is_body(port.server(), request_, in_bytes())) {
      return refuse(port, fmt::format("rank {} sent a request of {} runs that are not of this server's blocks",
                                      client.value, request_.runs));
    }
    port.hand_over(*this);
    return true;
  }

  bool refuse(ServerPort& port, const std::string& complaint) {
    give_up(port.fabric_);
    port.fabric_.lose(client, complaint);  // so that neither waits for the other
    return true;
  }

  void reply(ServerPort& port) {
    state = State::replying;
    head_out_.send(port.fabric_, client, tag(port, Part::reply_head), std::as_bytes(std::span(&reply_, 1)));
    if (reply_.body_bytes > 0) {
      body_out_.send(port.fabric_, client, tag(port, Part::reply_body),
                     {out_.data(), static_cast<std::size_t>(reply_.body_bytes)});
    }
  }

  bool next(ServerPort& port) {
    ++turn_;
    if (!port.is_open()) {  // it is not asked often now
      in_ = {};
      out_ = {};
    }
    listen(port);
    return true;
  }

  const ClientRole role_;
  const Channel channel_;
  std::uint32_t turn_ = 0;
  RequestHead request_;
  ReplyHead reply_;
  std::uint64_t position_ = 0;  ///< in the order of changes: the reply is sent when the backup has it too
  Buffer in_, out_;
  PendingTransfer head_in_, body_in_, head_out_, body_out_;
};

ServerPort::ServerPort(Fabric& fabric, OrderedServer& server, const std::vector<Client>& clients, Options options)
    : fabric_(fabric),
      ordered_(&server),
      blocks_(server.server().blocks()),
      floats_(server.server().floats()),
      options_(std::move(options)) {
  for (const Client& client : clients) {
    add_client(client);
  }
  for (int i = 0; i < options_.threads; ++i) {
    threads_.emplace_back([this](const std::stop_token& stop) {
      if (options_.thread_begins) {
        options_.thread_begins();
      }
      answer_all(stop);
    });
  }
}

void ServerPort::add_client(const Client& client) {
  if (client.rank.value >= fabric_.size()) {
    return;  // it was gone before there was a link to it
  }
  for (const Channel channel : {Channel::change, Channel::read}) {
    served_.push_back(std::make_unique<Served>(client, channel));
    served_.back()->listen(*this);
  }
}

ServerPort::~ServerPort() {
  threads_.clear();  // what is being answered is answered
  for (const std::unique_ptr<Served>& served : served_) {
    served->give_up(fabric_);
  }
}

std::function<ReplyHead()> ServerPort::begin_here(const RequestHead& request, std::span<const std::byte> in,
                                                  std::span<std::byte> out) {
  const Clock::time_point deadline = Clock::now() + options_.patience;
  std::uint64_t position = 0;
  std::optional<ReplyHead> reply;
  std::unique_lock lock(mutex_);
  while (Clock::now() < deadline) {
    const std::uint64_t seen = changes_;
    lock.unlock();
    reply = try_answer(request, in, out, position);
    lock.lock();
    if (reply) {
      break;
    }
    ++waiting_here_;
    changed_for_here_.wait_until(lock, deadline, [&] { return changes_ != seen; });
    --waiting_here_;
  }
  ++waiting_here_;  // so that the server stays
  lock.unlock();
  if (!reply) {
    RequestHead now = request;
    now.awaits_newer = 0;
    reply = try_answer(now, in, out, position);
  }
  return [this, answered = *reply, position, deadline] { return wait_here(answered, position, deadline); };
}

ReplyHead ServerPort::wait_here(const ReplyHead& answered, std::uint64_t position, Clock::time_point deadline) {
  ReplyHead reply = answered;
  OrderedServer* const server = ordered_;
  if (server != nullptr && reply.status != ReplyHead::Status::moved) {
    while (!server->wait_until_durable(position, std::min(deadline, Clock::now() + kBetweenLooks)) && !nobody_waits_ &&
           Clock::now() < deadline) {
    }
    if (!server->durable(position)) {
      reply = {.status = ReplyHead::Status::moved};  // nothing that may be lost is acknowledged
    }
  }
  const std::scoped_lock lock(mutex_);
  --waiting_here_;
  return reply;
}

void ServerPort::close() {
  std::unique_lock lock(mutex_);
  open_ = false;
  ++changes_;
  waiting_.insert(waiting_.end(), parked_.begin(), parked_.end());
  parked_.clear();
  changed_.notify_all();
  changed_for_here_.notify_all();
  left_.wait(lock, [&] { return inside_ == 0; });  // for as long as an update takes
}

bool ServerPort::is_quiet() {
  const std::scoped_lock lock(mutex_);
  return waiting_here_ == 0;
}

void ServerPort::open() {
  const std::scoped_lock lock(mutex_);
  open_ = true;
}

std::optional<ReplyHead> ServerPort::try_answer(const RequestHead& request, std::span<const std::byte> in,
                                                std::span<std::byte> out, std::uint64_t& position) {
  {
    const std::scoped_lock lock(mutex_);
    if (!open_) {
      position = 0;
      return ReplyHead{.status = ReplyHead::Status::moved};
    }
    ++inside_;
  }
  const std::optional<ReplyHead> reply = try_answer_open(request, in, out, position);
  const std::scoped_lock lock(mutex_);
  if (--inside_ == 0 && !open_) {
    left_.notify_all();
  }
  return reply;
}

std::optional<ReplyHead> ServerPort::try_answer_open(const RequestHead& request, std::span<const std::byte> in,
                                                     std::span<std::byte> out, std::uint64_t& position) {
  const bool may_wait = !nobody_waits_ && request.awaits_newer != 0;
  if (request.kind == RequestHead::Kind::work && options_.work) {
    position = 0;
    const std::optional<Work> work = options_.work(request);
    if (!work) {
      return may_wait ? std::nullopt : std::optional(ReplyHead{});
    }
    std::memcpy(out.data(), &*work, sizeof(Work));
    return ReplyHead{.rate_factor = server().rate_factor(), .body_bytes = sizeof(Work)};
  }
  if (may_wait && must_wait(server(), request, in)) {
    return std::nullopt;
  }
  return answer_now(request, in, out, position);
}

ReplyHead ServerPort::answer_now(const RequestHead& request, std::span<const std::byte> in, std::span<std::byte> out,
                                 std::uint64_t& position) {
  ReplyHead reply = ordered_.load()->answer(request, in, out, position);
  reply.pushed_bytes = pushed_bytes_;
  reply.fetched_bytes = fetched_bytes_;
  if (request.kind != RequestHead::Kind::fetch) {
    server_changed();
  }
  return reply;
}

void ServerPort::server_changed() {
  const std::scoped_lock lock(mutex_);
  ++changes_;
  if (!parked_.empty()) {
    waiting_.insert(waiting_.end(), parked_.begin(), parked_.end());
    parked_.clear();
    changed_.notify_all();
  }
  if (waiting_here_ > 0) {
    changed_for_here_.notify_all();
  }
}

void ServerPort::let_all_go() {
  nobody_waits_ = true;
  server_changed();
}

bool ServerPort::advance() {
  bool moved = false;
  for (const std::unique_ptr<Served>& served : served_) {
    moved = served->advance(*this) || moved;
  }
  return moved;
}

bool ServerPort::in_a_message() const {
  return std::ranges::any_of(served_, [](const std::unique_ptr<Served>& served) {
    const Served::State state = served->state.load(std::memory_order_relaxed);
    return state == Served::State::body || state == Served::State::replying;
  });
}

void ServerPort::hand_over(Served& served) {
  if (floats_ <= options_.few_floats && served.is_quick() && served.try_answer(*this)) {
    return;
  }
  served.state = Served::State::answering;
  const std::scoped_lock lock(mutex_);
  waiting_.push_back(&served);
  changed_.notify_one();
}

void ServerPort::answer_all(const std::stop_token& stop) {
  set_thread_count(1);
  while (true) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait(lock, stop, [&] { return !waiting_.empty(); })) {
      return;
    }
    Served* served = waiting_.front();
    waiting_.pop_front();
    const std::uint64_t seen = changes_;
    lock.unlock();
    if (!served->try_answer(*this)) {
      lock.lock();
      if (changes_ == seen) {
        parked_.push_back(served);
      } else {
        waiting_.push_back(served);
      }
      continue;
    }
    if (options_.wake) {
      options_.wake();
    }
  }
}

}  // namespace distbelief
