#include "server/server_client.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "server/request.h"
#include "server/server_client_place.h"
#include "tensor/vector_ops.h"

namespace distbelief {

ServerClient::ServerClient(Fabric& fabric, const BlockMap& map, const std::vector<Server>& servers, Options options)
    : fabric_(fabric), map_(map), options_(std::move(options)) {
  for (const Server& server : servers) {
    auto place = std::make_unique<Place>();
    for (const int number : server.blocks) {
      const Block& block = map.blocks()[static_cast<std::size_t>(number)];
      place->parts.push_back({block.range, block.averaged});
      place->floats += static_cast<std::size_t>(block.range.size());
    }
    place->here = server.here;
    place->have.assign(place->parts.size(), ParameterServer::kNothing);
    place->seen = place->have;
    blocks_of_servers_.push_back(server.blocks);
    const std::size_t blocks = place->parts.size();
    const std::size_t push = request_bytes(RequestHead::Kind::push, blocks, place->floats);
    const std::size_t fetch = request_bytes(RequestHead::Kind::fetch, blocks, place->floats);
    const std::size_t reply = most_body_bytes(blocks, place->floats);
    place->gathered = Buffer(std::max(push, kMostWords));
    const bool may_move = options_.holder != nullptr;
    const std::uint32_t view = view_of_shelf(options_.view, may_move ? places_.size() : 0);
    place->change = std::make_unique<Asked>(server.rank, view, options_.role, Channel::change, push, reply, may_move);
    place->read = std::make_unique<Asked>(server.rank, view, options_.role, Channel::read, fetch, reply, may_move);
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
  for (std::size_t i = 0; i < places_.size(); ++i) {
    for (Asked* asked : {places_[i]->change.get(), places_[i]->read.get()}) {
      if (asked->advance(fabric_) || (asked->stranded() && ask_again(i, *asked))) {
        moved = true;
        answered = answered || asked->answered() || asked->due_here();
      }
    }
  }
  if (answered) {
    const std::scoped_lock lock(mutex_);
    answered_.notify_all();
  }
  return moved;
}

bool ServerClient::ask_again(std::size_t place, Asked& asked) {
  const std::optional<Rank> holder = options_.holder(place);
  if (!holder) {
    asked.end_stranded();
    return true;
  }
  if (*holder == Rank{} || (*holder == asked.server() && !asked.may_ask_again())) {
    return false;  // nobody has said yet that it is lost, or the next is not ready
  }
  places_[place]->moves += *holder == asked.server() ? 0 : 1;
  asked.move_to(*holder, *holder == fabric_.rank());
  return true;
}

bool ServerClient::in_a_message() const {
  return std::ranges::any_of(places_, [](const std::unique_ptr<Place>& place) {
    return place->change->in_a_message() || place->read->in_a_message();
  });
}

void ServerClient::add(std::span<const std::span<const float>> parts, float factor) {
  check(!parts.empty() && (added_ == 0 || !added_is_runs_), "a gradient has parts, and what is pushed is of one kind");
  added_is_runs_ = false;
  for (const std::unique_ptr<Place>& place : places_) {
    if (added_ == 0) {
      std::ranges::copy(place->seen, place->versions(place->gathered).begin());
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
  const std::uint64_t number = next_number();
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
    const std::optional<RunsBody> runs = added_is_runs_ ? move_runs(*place) : std::nullopt;
    if (!runs) {
      std::swap(asked.body(), place->gathered);
      place->gathered_is_clear = false;
      place->added_runs.clear();
    }
    const auto versions = place->versions(asked.body());
    asked.versions.assign(versions.begin(), versions.end());
    asked.request = {
        .kind = RequestHead::Kind::push,
        .wants_values = unit.wants_values ? 1U : 0U,
        .incarnation = options_.incarnation,
        .push = unit.id,
        .samples = unit.samples,
        .scale = unit.scale,
        .low_water = unit.low_water,
        .lease = unit.lease,
        .done = unit.done,
        .runs = runs ? runs->runs : RequestHead::kWhole,
        .number = number,
        .body_bytes = runs ? runs->bytes : request_bytes(RequestHead::Kind::push, place->parts.size(), place->floats)};
  }
  added_ = 0;
  pushing_ = true;
  submit(places_, &Place::change);
  return before;
}

void ServerClient::submit(std::span<const std::unique_ptr<Place>> places, std::unique_ptr<Asked> Place::*channel) {
  std::vector<const std::unique_ptr<Place>*> here;
  for (const std::unique_ptr<Place>& place : places) {
    Asked& asked = *((*place).*channel);
    if (place->here || asked.server() == fabric_.rank()) {
      here.push_back(&place);
    } else {
      asked.submit();  // from here on it is the other thread's, which may ask another server, or this one
    }
  }
  if (options_.wake) {
    options_.wake();
  }
  std::vector<ReplyHere> replies;
  for (const std::unique_ptr<Place>* place : here) {  // while the others' requests are on their way
    replies.push_back(begin_here(static_cast<std::size_t>(place - places_.data()), *((**place).*channel)));
  }
  for (std::size_t i = 0; i < here.size(); ++i) {  // each may have to wait for its backup: all do so at the same time
    ((**here[i]).*channel)->end_here(replies[i]);
  }
}

ServerClient::ReplyHere ServerClient::begin_here(std::size_t place, Asked& asked) {
  if (places_[place]->here) {
    return asked.begin_here(places_[place]->here);
  }
  return asked.begin_here([&](const RequestHead& request, std::span<const std::byte> in, std::span<std::byte> out) {
    return options_.here(place, request, in, out);
  });
}

Outcome ServerClient::wait(Asked& asked, Clock::time_point deadline) {
  while (!asked.answered()) {
    std::unique_lock lock(mutex_);
    if (!answered_.wait_until(lock, deadline, [&] { return asked.answered() || asked.due_here(); })) {
      return {Outcome::Kind::timed_out, {}, "a server did not answer in time"};
    }
    if (asked.due_here()) {
      lock.unlock();
      const auto place = std::ranges::find_if(places_, [&](const std::unique_ptr<Place>& one) {
        return one->change.get() == &asked || one->read.get() == &asked;
      });
      asked.end_here(begin_here(static_cast<std::size_t>(place - places_.begin()), asked));
    }
  }
  if (asked.outcome.ok()) {
    rate_factor_ = asked.reply.rate_factor;
    asked.told_pushed = asked.reply.pushed_bytes;
    asked.told_fetched = asked.reply.fetched_bytes;
  }
  return asked.outcome;
}

ServerClient::Traffic ServerClient::traffic() const {
  Traffic traffic = {.order_bytes = order_bytes_};
  for (const std::unique_ptr<Place>& place : places_) {  // what a server counts only grows
    traffic.pushed_bytes += std::max(place->change->told_pushed, place->read->told_pushed);
    traffic.fetched_bytes += std::max(place->change->told_fetched, place->read->told_fetched);
  }
  return traffic;
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
  asked.request = {.kind = RequestHead::Kind::report,
                   .incarnation = options_.incarnation,
                   .done = done,
                   .number = next_number(),
                   .body_bytes = kMostWords};
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
  places_.front()->change->request = {
      .kind = RequestHead::Kind::leave, .incarnation = options_.incarnation, .number = next_number()};
  return ask(places_.front(), deadline);
}

ServerClient::PushReport ServerClient::order(RequestHead::Kind kind, float scale, Clock::time_point deadline) {
  PushReport report = wait_pushed(deadline);
  if (!report.outcome.ok()) {
    return report;
  }
  const std::uint64_t number = next_number();
  for (const std::unique_ptr<Place>& place : places_) {
    place->change->request = {.kind = kind, .incarnation = options_.incarnation, .scale = scale, .number = number};
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
                     .number = next_number(),
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
    int moves = place->moves;
    bool again = false;
    do {
      again = false;
      asked.request = {.kind = RequestHead::Kind::save, .incarnation = options_.incarnation, .offset = state.size()};
      if (report.outcome.ok()) {
        report = ask(place, deadline);
      }
      if (!report.outcome.ok() || report.status != ReplyHead::Status::done) {
        return report;
      }
      if (const int now = place->moves; now != moves) {  // what it has is of another moment
        moves = now;
        state.clear();
        again = asked.request.offset > 0;
        if (again) {
          continue;
        }
      }
      state.append(reinterpret_cast<const char*>(asked.reply_body().data()), asked.reply.body_bytes);
    } while (again || (state.size() < asked.reply.total && asked.reply.body_bytes > 0));
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
                       .number = next_number(),
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
    if (place->read->request.in_runs() && !brought_runs(*place)) {
      return {Outcome::Kind::mismatch, {}, "a server sent other values than it was asked for"};
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
      if (asked->request.kind == RequestHead::Kind::fetch && asked->request.in_runs()) {
        take_runs(*place, values);
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
      for (std::size_t i = 0; i < place->parts.size(); ++i) {
        if (place->have[i] != ParameterServer::kNothing) {
          place->seen[i] = place->have[i];
        }
      }
      asked->end();
    }
  }
}

}  // namespace distbelief
