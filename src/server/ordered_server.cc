#include "server/ordered_server.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "server/request.h"
#include "server/state_bytes.h"

namespace distbelief {
namespace {

constexpr std::size_t kMostNoteBytes = std::size_t{1} << 20;
constexpr std::size_t kMostBooksBytes = std::size_t{1} << 29;
constexpr std::size_t kMostPieceBytes = std::size_t{16} << 20;

/// What a reply brings besides values, which are read anew.
std::size_t told_bytes(const RequestHead& request, const ReplyHead& reply) {
  return request.kind == RequestHead::Kind::vectors ? reply.body_bytes : 0;
}

void visit_text(StateVisitor& visitor, std::string_view name, std::string& text) {
  std::vector<std::uint64_t> words((text.size() + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t) + 1);
  words[0] = text.size();
  std::memcpy(words.data() + 1, text.data(), text.size());
  visitor.numbers(name, words);
  if (words.empty() || words[0] > (words.size() - 1) * sizeof(std::uint64_t)) {
    throw FileError("a copy of a server's state is damaged");
  }
  text.assign(reinterpret_cast<const char*>(words.data() + 1), words[0]);
}

}  // namespace

OrderedServer::OrderedServer(ParameterServer& server, Options options)
    : server_(server), options_(std::move(options)), main_(make_log(options_.backup, 0)), whole_(options_.whole) {}

ReplicaLog* OrderedServer::make_log(std::optional<Rank> backup, std::uint64_t last) {
  return logs_.emplace_back(std::make_unique<ReplicaLog>(backup, last)).get();
}

bool OrderedServer::durable(std::uint64_t position) const {
  while (true) {
    const ReplicaLog* main = main_.load();
    const ReplicaLog* next = next_.load();
    const ReplicaLog* old = old_.load();
    const bool all = main->durable(position) && (next == nullptr || next->durable(position)) &&
                     (old == nullptr || old->durable(std::min(position, old_last_.load())));
    if (!all || main_.load() == main) {  // otherwise they have changed places, and one may have been overlooked
      return all;
    }
  }
}

bool OrderedServer::wait_until_durable(std::uint64_t position, Clock::time_point deadline) {
  constexpr std::chrono::milliseconds kTurn{10};
  while (!durable(position) && Clock::now() < deadline) {  // logs may change places meanwhile
    const Clock::time_point turn = std::min(deadline, Clock::now() + kTurn);
    ReplicaLog* next = next_;
    ReplicaLog* const slow = next != nullptr && !next->durable(position) ? next : main_.load();
    if (slow->wait_until_durable(position, turn) && !durable(position)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // an old one, which ends soon
    }
  }
  return durable(position);
}

ReplyHead OrderedServer::answer(const RequestHead& request, std::span<const std::byte> in, std::span<std::byte> out,
                                std::uint64_t& position) {
  position = 0;
  if (!is_change(request.kind)) {
    const ReplyHead reply = distbelief::answer(server_, request, in, out);
    position = options_.replicated ? log().last() : 0;  // nobody sees what might still be lost
    return reply;
  }
  if (!options_.replicated) {
    return make_change(request, in, out);
  }
  const std::scoped_lock lock(order_);
  const auto before = answered_.find(request.incarnation);
  if (request.number == 0 || before == answered_.end() || before->second.number != request.number) {
    position = log().append(request, in);
    if (ReplicaLog* next = next_; next != nullptr) {
      (void)next->append(request, in);
    }
    if (options_.wake && !durable(position)) {
      options_.wake();  // it travels while it is done here
    }
    return change_locked(request, in, out);
  }
  position = log().last();
  const Answered& answered = before->second;
  ReplyHead reply = answered.reply;
  std::memcpy(out.data(), answered.body.data(), answered.body.size());
  reply.body_bytes = answered.body.size();
  const bool refused = reply.status == ReplyHead::Status::late || reply.status >= ReplyHead::Status::fenced;
  if (request.kind == RequestHead::Kind::push && request.wants_values != 0 && !refused) {
    const std::size_t versions_bytes = server_.blocks() * sizeof(std::uint64_t);
    const RequestHead reads = {.kind = RequestHead::Kind::fetch, .body_bytes = versions_bytes};
    reply.body_bytes = distbelief::answer(server_, reads, in.first(versions_bytes), out).body_bytes;
  }
  return reply;
}

ReplyHead OrderedServer::change_locked(const RequestHead& request, std::span<const std::byte> in,
                                       std::span<std::byte> out) {
  const ReplyHead reply = make_change(request, in, out);
  if (request.number != 0) {
    Answered& answered = answered_[request.incarnation];
    answered.number = request.number;
    answered.reply = reply;
    answered.body.assign(reinterpret_cast<const char*>(out.data()), told_bytes(request, reply));
  }
  return reply;
}

ReplyHead OrderedServer::make_change(const RequestHead& request, std::span<const std::byte> in,
                                     std::span<std::byte> out) {
  if (request.kind == RequestHead::Kind::books) {
    return {};  // which has them
  }
  if (request.kind == RequestHead::Kind::note) {
    note_.assign(reinterpret_cast<const char*>(in.data()), in.size());
    return {};
  }
  const ReplyHead reply = distbelief::answer(server_, request, in, out);
  if (options_.heard) {
    const auto* text = reinterpret_cast<const char*>(in.data());
    const bool reports = request.kind == RequestHead::Kind::report;
    options_.heard(request, reply, reports ? std::string_view(text, ::strnlen(text, in.size())) : std::string_view());
  }
  return reply;
}

std::string OrderedServer::note() const {
  const std::scoped_lock lock(order_);
  return note_;
}

bool OrderedServer::whole() const {
  const std::scoped_lock lock(order_);
  return whole_;
}

void OrderedServer::change_backup(std::optional<Rank> next) {
  const std::scoped_lock lock(order_);
  log().change_backup(next, next ? copy_locked() : std::string());
}

ReplicaLog& OrderedServer::begin_copy(Rank to) {
  const std::scoped_lock lock(order_);
  check(next_ == nullptr, "one copy at a time");
  ReplicaLog* next = make_log({}, log().last());
  next->change_backup(to, copy_locked());
  next_ = next;
  return *next;
}

void OrderedServer::retire_main_locked(ReplicaLog* next) {
  check(old_ == nullptr, "one backup is let go at a time");
  log().say_bye();
  if (!log().is_idle()) {
    old_last_ = log().last();
    old_ = main_.load();
  }
  main_ = next;
}

void OrderedServer::adopt_copy() {
  const std::scoped_lock lock(order_);
  check(next_ != nullptr, "who is to be the backup has a copy");
  retire_main_locked(next_);
  next_ = nullptr;
}

void OrderedServer::end_copy() {
  const std::scoped_lock lock(order_);
  next_ = nullptr;
}

void OrderedServer::let_backup_go() {
  const std::scoped_lock lock(order_);
  retire_main_locked(make_log({}, log().last()));
}

void OrderedServer::become_primary(std::optional<Rank> backup) {
  const std::scoped_lock lock(order_);
  main_ = make_log(backup, log().last());
  dismissed_ = false;
}

void OrderedServer::become_backup() {
  const std::scoped_lock lock(order_);
  main_ = make_log({}, log().last());  // so that replies which are still to be sent are durable, as they were
  whole_ = true;
  dismissed_ = false;
}

std::string OrderedServer::copy_locked() {
  StateWriter writer;
  std::vector<std::uint64_t> clients;
  for (const auto& [client, answered] : answered_) {
    clients.push_back(client);
  }
  writer.numbers("clients", clients);
  for (auto& [client, answered] : answered_) {
    writer.number("number", answered.number);
    std::string reply(reinterpret_cast<const char*>(&answered.reply), sizeof(ReplyHead));
    visit_text(writer, "reply", reply);
    visit_text(writer, "body", answered.body);
  }
  visit_text(writer, "note", note_);
  std::string heard = options_.save_heard ? options_.save_heard() : std::string();
  visit_text(writer, "heard", heard);
  std::string state = server_.copy();
  visit_text(writer, "server", state);
  return writer.take();
}

void OrderedServer::become_locked(const std::string& copy) {
  const std::string source = "a primary's copy";
  StateReader reader(copy, source);
  std::vector<std::uint64_t> clients;
  reader.numbers("clients", clients);
  answered_.clear();
  for (const std::uint64_t client : clients) {
    Answered& answered = answered_[client];
    reader.number("number", answered.number);
    std::string reply;
    visit_text(reader, "reply", reply);
    std::memcpy(&answered.reply, reply.data(), std::min(reply.size(), sizeof(ReplyHead)));
    visit_text(reader, "body", answered.body);
  }
  visit_text(reader, "note", note_);
  std::string heard;
  visit_text(reader, "heard", heard);
  if (options_.restore_heard) {
    options_.restore_heard(heard);
  }
  std::string state;
  visit_text(reader, "server", state);
  reader.expect_end();
  server_.become(state, source);
}

bool OrderedServer::is_for_backup(const ReplicaHead& head) const {
  const RequestHead& request = head.request;
  switch (request.kind) {
    case RequestHead::Kind::fence:
    case RequestHead::Kind::admit:
    case RequestHead::Kind::whole:
    case RequestHead::Kind::bye:
      return request.body_bytes == 0;
    case RequestHead::Kind::note:
      return request.body_bytes <= kMostNoteBytes;
    case RequestHead::Kind::books:
      return request.body_bytes <= kMostBooksBytes;
    case RequestHead::Kind::copy:
      return request.body_bytes <= kMostPieceBytes;
    default:
      return is_change(request.kind) && is_request(request, server_.blocks(), server_.floats());
  }
}

bool OrderedServer::repeat(const ReplicaHead& head, std::span<const std::byte> body) {
  RequestHead request = head.request;
  const std::scoped_lock lock(order_);
  if (request.kind == RequestHead::Kind::copy) {
    whole_ = false;
    if (request.offset == 0) {
      copy_.clear();
    }
    if (request.offset != copy_.size() || body.size() > request.total - copy_.size()) {
      return false;
    }
    copy_.append(reinterpret_cast<const char*>(body.data()), body.size());
    if (copy_.size() < request.total) {
      return true;
    }
    const std::string copy = std::exchange(copy_, {});
    try {
      become_locked(copy);
    } catch (const Error&) {
      return false;
    }
    return true;
  }
  if (request.kind == RequestHead::Kind::whole) {
    whole_ = true;
    return true;
  }
  if (request.kind == RequestHead::Kind::bye) {
    dismissed_ = true;
    return true;
  }
  if (request.kind == RequestHead::Kind::books) {
    try {
      check(options_.restore_heard != nullptr, "books are told to who keeps some");
      options_.restore_heard({reinterpret_cast<const char*>(body.data()), body.size()});
    } catch (const Error&) {
      return false;
    }
    return true;
  }
  request.wants_values = 0;
  scratch_.resize(std::max(kMostWords, body.size()));
  (void)change_locked(request, body, scratch_);
  return true;
}

}  // namespace distbelief
