#include "server/server_client.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/check.h"
#include "server/pending_transfer.h"
#include "server/request.h"
#include "tensor/vector_ops.h"

namespace distbelief {

/// One channel to one server. While it is idle or answered it belongs to the worker's thread, otherwise to the
/// fabric's.
class ServerClient::Asked {
 public:
  enum class State : std::uint8_t { idle, submitted, head, body, answered };

  Asked(Rank server, ClientRole role, Channel channel, std::size_t request_most, std::size_t reply_most)
      : server_(server),
        role_(role),
        channel_(channel),
        body_(std::max(request_most, kMostWords)),
        reply_body_(std::max(reply_most, kMostWords)) {}

  RequestHead request;
  std::vector<std::uint64_t> versions;  ///< that the request named
  ReplyHead reply;
  Outcome outcome;

  Buffer& body() { return body_; }
  const Buffer& reply_body() const { return reply_body_; }
  bool answered() const { return state_.load(std::memory_order_acquire) == State::answered; }
  bool open() const { return state_.load(std::memory_order_relaxed) != State::idle; }
  void end() { state_.store(State::idle, std::memory_order_relaxed); }

  void submit() {
    outcome = {};
    reply = {};
    state_.store(State::submitted, std::memory_order_release);
  }
  template <typename Here>
  void ask(const Here& here) {
    outcome = {};
    reply = here(request, body_bytes(), {reply_body_.data(), reply_body_.bytes()});
    state_.store(State::answered, std::memory_order_relaxed);
  }

  /// True when something moved.
  bool advance(Fabric& fabric, std::uint32_t view) {
    switch (state_.load(std::memory_order_acquire)) {
      case State::submitted:
        head_in_.receive(fabric, server_, channel_tag(view, role_, channel_, turn_, Part::reply_head),
                         std::as_writable_bytes(std::span(&reply, 1)));
        head_out_.send(fabric, server_, channel_tag(view, role_, channel_, turn_, Part::request_head),
                       std::as_bytes(std::span(&request, 1)));
        if (request.body_bytes > 0) {
          body_out_.send(fabric, server_, channel_tag(view, role_, channel_, turn_, Part::request_body), body_bytes());
        }
        state_.store(State::head, std::memory_order_relaxed);
        return true;
      case State::head:
        if (!head_out_.ended(fabric, outcome) || !body_out_.ended(fabric, outcome) ||
            !head_in_.ended(fabric, outcome)) {
          return false;
        }
        if (outcome.ok() && reply.body_bytes > reply_body_.bytes()) {
          outcome = {Outcome::Kind::mismatch, server_, "a server sent more than it owns"};
        }
        if (!outcome.ok() || reply.body_bytes == 0) {
          finish();
          return true;
        }
        body_in_.receive(fabric, server_, channel_tag(view, role_, channel_, turn_, Part::reply_body),
                         {reply_body_.data(), static_cast<std::size_t>(reply.body_bytes)});
        state_.store(State::body, std::memory_order_relaxed);
        return true;
      case State::body:
        if (!body_in_.ended(fabric, outcome)) {
          return false;
        }
        finish();
        return true;
      case State::idle:
      case State::answered:
        return false;
    }
    return false;
  }

  void give_up(Fabric& fabric) {
    for (PendingTransfer* transfer : {&head_out_, &body_out_, &head_in_, &body_in_}) {
      transfer->give_up(fabric);
    }
  }

 private:
  std::span<std::byte> body_bytes() const { return {body_.data(), static_cast<std::size_t>(request.body_bytes)}; }

  void finish() {
    ++turn_;
    state_.store(State::answered, std::memory_order_release);
  }

  const Rank server_;
  const ClientRole role_;
  const Channel channel_;
  std::atomic<State> state_ = State::idle;
  std::uint32_t turn_ = 0;
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
  std::vector<std::uint64_t> have;  ///< the version of each block that the worker has
  Buffer gathered;                  ///< as the body of a push
  std::unique_ptr<Asked> change, read;

  std::size_t versions_bytes() const { return parts.size() * sizeof(std::uint64_t); }
  std::span<std::uint64_t> versions(const Buffer& body) const { return body.as<std::uint64_t>().first(parts.size()); }
  float* numbers(const Buffer& body) const { return reinterpret_cast<float*>(body.data() + versions_bytes()); }
};

ServerClient::ServerClient(Fabric& fabric, const BlockMap& map, const std::vector<Server>& servers, Options options)
    : fabric_(fabric), options_(std::move(options)) {
  for (const Server& server : servers) {
    auto place = std::make_unique<Place>();
    for (const int number : server.blocks) {
      const Block& block = map.blocks()[static_cast<std::size_t>(number)];
      place->parts.push_back({block.range, block.averaged});
      place->floats += static_cast<std::size_t>(block.range.size());
    }
    place->here = server.here;
    place->have.assign(place->parts.size(), ParameterServer::kNothing);
    const std::size_t blocks = place->parts.size();
    const std::size_t push = request_bytes(RequestHead::Kind::push, blocks, place->floats);
    const std::size_t fetch = request_bytes(RequestHead::Kind::fetch, blocks, place->floats);
    const std::size_t reply = most_body_bytes(blocks, place->floats);
    place->gathered = Buffer(std::max(push, kMostWords));
    place->change = std::make_unique<Asked>(server.rank, options_.role, Channel::change, push, reply);
    place->read = std::make_unique<Asked>(server.rank, options_.role, Channel::read, fetch, reply);
    places_.push_back(std::move(place));
  }
}

ServerClient::~ServerClient() {
  for (const std::unique_ptr<Place>& place : places_) {
    place->change->give_up(fabric_);
    place->read->give_up(fabric_);
  }
}

bool ServerClient::advance() {
  bool moved = false;
  bool answered = false;
  for (const std::unique_ptr<Place>& place : places_) {
    for (Asked* asked : {place->change.get(), place->read.get()}) {
      if (asked->advance(fabric_, options_.view)) {
        moved = true;
        answered = answered || asked->answered();
      }
    }
  }
  if (answered) {
    const std::scoped_lock lock(mutex_);
    answered_.notify_all();
  }
  return moved;
}

void ServerClient::add(std::span<const std::span<const float>> parts, float factor) {
  check(!parts.empty(), "a gradient has parts");
  for (const std::unique_ptr<Place>& place : places_) {
    if (added_ == 0) {
      std::ranges::copy(place->have, place->versions(place->gathered).begin());
    }
    float* out = place->numbers(place->gathered);
    for (const Place::Part& block : place->parts) {
      const std::int64_t size = block.range.size();
      const bool scaled = factor != 1 && !block.averaged;
      std::size_t next = 0;
      if (added_ == 0) {
        if (scaled) {
          std::fill_n(out, size, 0.0F);
        } else {
          std::copy_n(parts[0].data() + block.range.begin, size, out);
          next = 1;
        }
      }
      for (; next < parts.size(); ++next) {
        const float* part = parts[next].data() + block.range.begin;
        if (scaled) {
          axpy(factor, part, out, size);
        } else {
          distbelief::add(out, part, out, size);
        }
      }
      out += size;
    }
  }
  added_ += static_cast<int>(parts.size());
}

ServerClient::PushReport ServerClient::push(const Unit& unit, Clock::time_point deadline) {
  PushReport before = wait_pushed(deadline);
  if (!before.outcome.ok()) {
    return before;
  }
  check(added_ > 0, "what is pushed was added");
  for (const std::unique_ptr<Place>& place : places_) {
    float* numbers = place->numbers(place->gathered);
    for (const Place::Part& block : place->parts) {
      if (block.averaged && added_ > 1) {  // the mean of what was observed
        std::transform(numbers, numbers + block.range.size(), numbers,
                       [share = 1.0F / static_cast<float>(added_)](float sum) { return sum * share; });
      }
      numbers += block.range.size();
    }
    Asked& asked = *place->change;
    std::swap(asked.body(), place->gathered);
    const auto versions = place->versions(asked.body());
    asked.versions.assign(versions.begin(), versions.end());
    asked.request = {.kind = RequestHead::Kind::push,
                     .wants_values = unit.wants_values ? 1U : 0U,
                     .incarnation = options_.incarnation,
                     .push = unit.id,
                     .samples = unit.samples,
                     .scale = unit.scale,
                     .low_water = unit.low_water,
                     .lease = unit.lease,
                     .done = unit.done,
                     .body_bytes = request_bytes(RequestHead::Kind::push, place->parts.size(), place->floats)};
  }
  added_ = 0;
  pushing_ = true;
  submit(places_, &Place::change);
  return before;
}

void ServerClient::submit(std::span<const std::unique_ptr<Place>> places, std::unique_ptr<Asked> Place::*channel) {
  for (const std::unique_ptr<Place>& place : places) {
    if (!place->here) {
      ((*place).*channel)->submit();
    }
  }
  if (options_.wake) {
    options_.wake();
  }
  for (const std::unique_ptr<Place>& place : places) {  // while the others' requests are on their way
    if (place->here) {
      ((*place).*channel)->ask(place->here);
    }
  }
}

Outcome ServerClient::wait(Asked& asked, Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  if (!answered_.wait_until(lock, deadline, [&] { return asked.answered(); })) {
    return {Outcome::Kind::timed_out, {}, "a server did not answer in time"};
  }
  if (asked.outcome.ok()) {
    rate_factor_ = asked.reply.rate_factor;
  }
  return asked.outcome;
}

ServerClient::PushReport ServerClient::wait_pushed(Clock::time_point deadline) {
  PushReport report;
  if (!pushing_) {
    return report;
  }
  std::uint64_t blocks = 0;
  std::uint64_t all_blocks = 0;
  std::uint64_t sum = 0;
  for (const std::unique_ptr<Place>& place : places_) {
    report.outcome = wait(*place->change, deadline);
    if (!report.outcome.ok()) {
      return report;
    }
    const ReplyHead& reply = place->change->reply;
    report.status = std::max(report.status, reply.status);
    report.staleness_most = std::max(report.staleness_most, reply.staleness_most);
    blocks += reply.blocks;
    all_blocks += place->parts.size();
    sum += reply.staleness_sum;
  }
  report.whole = blocks == all_blocks;
  report.staleness = blocks > 0 ? static_cast<double>(sum) / static_cast<double>(blocks) : 0;
  pushing_ = false;
  return report;
}

ServerClient::PushReport ServerClient::report(const UnitReport& done, const std::string& words,
                                              Clock::time_point deadline) {
  PushReport report = wait_pushed(deadline);
  if (!report.outcome.ok()) {
    return report;
  }
  Asked& asked = *places_.front()->change;
  std::span<std::byte> body = std::span(asked.body().data(), kMostWords);
  std::ranges::fill(body, std::byte{});
  std::ranges::copy(std::as_bytes(std::span(words)).first(std::min(words.size(), kMostWords)), body.begin());
  asked.request = {
      .kind = RequestHead::Kind::report, .incarnation = options_.incarnation, .done = done, .body_bytes = kMostWords};
  return ask(places_.front(), deadline);
}

ServerClient::PushReport ServerClient::ask(std::unique_ptr<Place>& place, Clock::time_point deadline) {
  submit(std::span(&place, 1), &Place::change);
  PushReport report = {.outcome = wait(*place->change, deadline)};
  report.status = place->change->reply.status;
  place->change->end();
  return report;
}

ServerClient::PushReport ServerClient::idle(Clock::time_point deadline) {
  return order(RequestHead::Kind::idle, 0, deadline);
}

ServerClient::PushReport ServerClient::leave(Clock::time_point deadline) {
  PushReport report = wait_pushed(deadline);
  if (!report.outcome.ok()) {
    return report;
  }
  places_.front()->change->request = {.kind = RequestHead::Kind::leave, .incarnation = options_.incarnation};
  return ask(places_.front(), deadline);
}

ServerClient::PushReport ServerClient::order(RequestHead::Kind kind, float scale, Clock::time_point deadline) {
  PushReport report = wait_pushed(deadline);
  if (!report.outcome.ok()) {
    return report;
  }
  for (const std::unique_ptr<Place>& place : places_) {
    place->change->request = {.kind = kind, .incarnation = options_.incarnation, .scale = scale};
  }
  pushing_ = true;
  submit(places_, &Place::change);
  return wait_pushed(deadline);
}

ServerClient::PushReport ServerClient::set_values(std::span<const float> values, Clock::time_point deadline) {
  PushReport report = wait_pushed(deadline);
  for (auto place = places_.begin(); report.outcome.ok() && place != places_.end(); ++place) {
    Asked& asked = *(*place)->change;
    float* out = (*place)->numbers(asked.body());
    for (const Place::Part& block : (*place)->parts) {
      out = std::copy_n(values.data() + block.range.begin, block.range.size(), out);
    }
    asked.request = {.kind = RequestHead::Kind::set,
                     .incarnation = options_.incarnation,
                     .body_bytes = request_bytes(RequestHead::Kind::set, (*place)->parts.size(), (*place)->floats)};
    report = ask(*place, deadline);
  }
  return report;
}

ServerClient::PushReport ServerClient::save(std::vector<std::string>& states, Clock::time_point deadline) {
  PushReport report = wait_pushed(deadline);
  states.clear();
  for (std::unique_ptr<Place>& place : places_) {
    Asked& asked = *place->change;
    std::string& state = states.emplace_back();
    do {
      asked.request = {.kind = RequestHead::Kind::save, .incarnation = options_.incarnation, .offset = state.size()};
      if (report.outcome.ok()) {
        report = ask(place, deadline);
      }
      if (!report.outcome.ok() || report.status != ReplyHead::Status::done) {
        return report;
      }
      state.append(reinterpret_cast<const char*>(asked.reply_body().data()), asked.reply.body_bytes);
    } while (state.size() < asked.reply.total && asked.reply.body_bytes > 0);
    if (state.size() != asked.reply.total) {
      report.outcome = {Outcome::Kind::mismatch, {}, "a server told less of its state than it has"};
      return report;
    }
  }
  return report;
}

ServerClient::PushReport ServerClient::restore(const std::vector<std::string>& states, Clock::time_point deadline) {
  check(states.size() == places_.size(), "a state for every server");
  PushReport report = wait_pushed(deadline);
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const std::string& state = states[i];
    Asked& asked = *places_[i]->change;
    const std::size_t most = most_body_bytes(places_[i]->parts.size(), places_[i]->floats);
    std::size_t sent = 0;
    do {
      if (!report.outcome.ok() || report.status != ReplyHead::Status::done) {
        return report;
      }
      const std::size_t bytes = std::min(most, state.size() - sent);
      std::memcpy(asked.body().data(), state.data() + sent, bytes);
      asked.request = {.kind = RequestHead::Kind::restore,
                       .incarnation = options_.incarnation,
                       .offset = sent,
                       .total = state.size(),
                       .body_bytes = bytes};
      report = ask(places_[i], deadline);
      sent += bytes;
    } while (sent < state.size());
  }
  return report;
}

void ServerClient::begin_fetch(Freshness freshness) {
  check(!fetching_, "one fetch is on its way at a time");
  for (const std::unique_ptr<Place>& place : places_) {
    Asked& asked = *place->read;
    asked.versions = place->have;
    std::ranges::copy(place->have, place->versions(asked.body()).begin());
    asked.request = {.kind = RequestHead::Kind::fetch,
                     .incarnation = options_.incarnation,
                     .awaits_newer = freshness == Freshness::all_newer ? 1U : 0U,
                     .body_bytes = request_bytes(RequestHead::Kind::fetch, place->parts.size(), place->floats)};
  }
  fetching_ = true;
  submit(places_, &Place::read);
}

Outcome ServerClient::wait_fetched(Clock::time_point deadline) {
  check(fetching_, "a fetch begins before it ends");
  for (const std::unique_ptr<Place>& place : places_) {
    if (Outcome outcome = wait(*place->read, deadline); !outcome.ok()) {
      return outcome;
    }
  }
  fetching_ = false;
  return {};
}

void ServerClient::take(std::span<float> values) {
  for (const std::unique_ptr<Place>& place : places_) {
    for (Asked* asked : {pushing_ ? nullptr : place->change.get(), fetching_ ? nullptr : place->read.get()}) {
      if (asked == nullptr || !asked->answered() || asked->reply.body_bytes == 0) {
        continue;
      }
      const auto versions = place->versions(asked->reply_body());
      const float* numbers = place->numbers(asked->reply_body());
      for (std::size_t i = 0; i < place->parts.size(); ++i) {
        const std::uint64_t named = asked->versions[i];
        if (named != ParameterServer::kNothing && versions[i] <= named) {
          continue;  // it was not sent
        }
        const Range& range = place->parts[i].range;
        if (place->have[i] == ParameterServer::kNothing || versions[i] > place->have[i]) {
          std::copy_n(numbers, range.size(), values.data() + range.begin);
          place->have[i] = versions[i];
        }
        numbers += range.size();
      }
      asked->end();
    }
  }
}

}  // namespace distbelief
