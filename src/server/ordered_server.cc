#include "server/ordered_server.h"

#include <algorithm>
#include <cstring>
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
    : server_(server), options_(std::move(options)), log_(options_.backup), whole_(options_.whole) {}

ReplyHead OrderedServer::answer(const RequestHead& request, std::span<const std::byte> in, std::span<std::byte> out,
                                std::uint64_t& position) {
  position = 0;
  if (!is_change(request.kind)) {
    const ReplyHead reply = distbelief::answer(server_, request, in, out);
    position = options_.replicated ? log_.last() : 0;  // nobody sees what might still be lost
    return reply;
  }
  if (!options_.replicated) {
    return make_change(request, in, out);
  }
  const std::scoped_lock lock(order_);
  const auto before = answered_.find(request.incarnation);
  if (request.number == 0 || before == answered_.end() || before->second.number != request.number) {
    position = log_.append(request, in);
    if (options_.wake && !log_.durable(position)) {
      options_.wake();  // it travels while it is done here
    }
    return change_locked(request, in, out);
  }
  position = log_.last();
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
  log_.change_backup(next, next ? copy_locked() : std::string());
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
    case RequestHead::Kind::whole:
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
