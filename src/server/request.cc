#include "server/request.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/check.h"
#include "params/lbfgs/range_vectors.h"

namespace distbelief {
namespace {

template <typename T>
std::span<T> numbers(std::span<std::byte> bytes, std::size_t count) {
  check(bytes.size() >= count * sizeof(T), "a body has room for its numbers");
  return {reinterpret_cast<T*>(bytes.data()), count};
}

template <typename T>
std::span<const T> numbers(std::span<const std::byte> bytes, std::size_t count) {
  check(bytes.size() >= count * sizeof(T), "a body has room for its numbers");
  return {reinterpret_cast<const T*>(bytes.data()), count};
}

}  // namespace

std::size_t request_bytes(RequestHead::Kind kind, std::size_t blocks, std::size_t floats) {
  switch (kind) {
    case RequestHead::Kind::push:
    case RequestHead::Kind::set:
      return blocks * sizeof(std::uint64_t) + floats * sizeof(float);
    case RequestHead::Kind::fetch:
      return blocks * sizeof(std::uint64_t);
    case RequestHead::Kind::report:
      return kMostWords;
    case RequestHead::Kind::work:
    case RequestHead::Kind::leave:
    case RequestHead::Kind::idle:
    case RequestHead::Kind::flush:
    case RequestHead::Kind::end:
    case RequestHead::Kind::slow_down:
    case RequestHead::Kind::mark:
    case RequestHead::Kind::save:
      return 0;
    case RequestHead::Kind::restore:
    case RequestHead::Kind::vectors:
      return most_body_bytes(blocks, floats);
    case RequestHead::Kind::fence:
    case RequestHead::Kind::admit:
    case RequestHead::Kind::note:
    case RequestHead::Kind::books:
    case RequestHead::Kind::copy:
    case RequestHead::Kind::whole:
    case RequestHead::Kind::bye:
      break;
  }
  return 0;
}

std::size_t runs_request_bytes(RequestHead::Kind kind, std::size_t blocks, std::size_t runs, std::size_t floats) {
  return blocks * sizeof(std::uint64_t) + runs * sizeof(FloatRun) +
         (kind == RequestHead::Kind::push ? floats * sizeof(float) : 0);
}

bool is_request(const RequestHead& head, std::size_t blocks, std::size_t floats) {
  if (head.kind > RequestHead::Kind::vectors) {
    return false;
  }
  const std::size_t bytes = request_bytes(head.kind, blocks, floats);
  if (head.in_runs()) {
    const std::size_t most = most_body_bytes(blocks, floats);
    if ((head.kind != RequestHead::Kind::push && head.kind != RequestHead::Kind::fetch) || head.body_bytes > most ||
        head.runs > most / sizeof(FloatRun)) {
      return false;
    }
    const std::size_t named = runs_request_bytes(RequestHead::Kind::fetch, blocks, head.runs, 0);
    return head.kind == RequestHead::Kind::fetch
               ? head.body_bytes == named
               : head.body_bytes >= named && (head.body_bytes - named) % sizeof(float) == 0;
  }
  switch (head.kind) {
    case RequestHead::Kind::restore:
      return head.body_bytes <= bytes;
    case RequestHead::Kind::vectors:
      return head.body_bytes <= bytes && head.body_bytes % sizeof(VectorOrder) == 0;
    default:
      return head.body_bytes == bytes;
  }
}

std::size_t most_body_bytes(std::size_t blocks, std::size_t floats) {
  return std::max(blocks * sizeof(std::uint64_t) + floats * sizeof(float), kMostWords);
}

namespace {

std::span<const FloatRun> runs_in(const ParameterServer& server, const RequestHead& head,
                                  std::span<const std::byte> in) {
  return numbers<FloatRun>(in.subspan(server.blocks() * sizeof(std::uint64_t)), head.runs);
}

std::span<const VectorOrder> orders_in(std::span<const std::byte> in) {
  return numbers<VectorOrder>(in, in.size() / sizeof(VectorOrder));
}

/// Of a push.
std::span<const float> floats_in(const ParameterServer& server, const RequestHead& head,
                                 std::span<const std::byte> in) {
  const std::size_t before =
      runs_request_bytes(RequestHead::Kind::fetch, server.blocks(), head.in_runs() ? head.runs : 0, 0);
  return numbers<float>(in.subspan(before), (in.size() - before) / sizeof(float));
}

}  // namespace

bool is_body(const ParameterServer& server, const RequestHead& head, std::span<const std::byte> in) {
  if (head.kind == RequestHead::Kind::vectors) {
    return RangeVectors::are_orders(orders_in(in));
  }
  if (!head.in_runs()) {
    return true;
  }
  const std::optional<std::size_t> floats = server.floats_of(runs_in(server, head, in));
  return floats && (head.kind == RequestHead::Kind::fetch || *floats == floats_in(server, head, in).size());
}

bool must_wait(ParameterServer& server, const RequestHead& head, std::span<const std::byte> in) {
  return head.kind == RequestHead::Kind::fetch && head.awaits_newer != 0 &&
         !server.newer_than(numbers<std::uint64_t>(in, server.blocks()));
}

namespace {

ReplyHead finite_or_not(bool finite) {
  return {.status = finite ? ReplyHead::Status::done : ReplyHead::Status::nonfinite};
}

ReplyHead answer_of(ParameterServer& server, const RequestHead& head, std::span<const std::byte> in,
                    std::span<std::byte> out) {
  switch (head.kind) {
    case RequestHead::Kind::report:
    case RequestHead::Kind::leave:
    case RequestHead::Kind::work:  // what there is to do others know
    case RequestHead::Kind::note:
    case RequestHead::Kind::books:
    case RequestHead::Kind::copy:
    case RequestHead::Kind::whole:
    case RequestHead::Kind::bye:
      return {};
    case RequestHead::Kind::fence:
      server.fence(head.incarnation);
      return finite_or_not(server.flush_full());
    case RequestHead::Kind::admit:
      server.admit(head.incarnation);
      return {};
    case RequestHead::Kind::vectors: {
      const std::span<const VectorOrder> orders = orders_in(in);
      const std::span<double> dots = numbers<double>(out, dots_of(orders));
      server.run_vectors(orders, head.low_water, dots);
      return {.body_bytes = dots.size_bytes()};
    }
    case RequestHead::Kind::flush:
      return finite_or_not(server.flush());
    case RequestHead::Kind::end:
      server.end();
      return {};
    case RequestHead::Kind::idle:
      return finite_or_not(server.idle(head.incarnation));
    case RequestHead::Kind::slow_down:
      if (head.scale > 0 && head.scale <= 1) {
        server.slow_down(head.scale);
      }
      return {};
    case RequestHead::Kind::set:
      server.set_values(numbers<float>(in.subspan(server.blocks() * sizeof(std::uint64_t)), server.floats()));
      return {};
    case RequestHead::Kind::mark:
      server.mark();
      return {};
    case RequestHead::Kind::save:
      return server.save_piece(head.offset, out);
    case RequestHead::Kind::restore:
      return {.status = server.restore_piece(head.offset, head.total, in) ? ReplyHead::Status::done
                                                                          : ReplyHead::Status::damaged};
    case RequestHead::Kind::push:
    case RequestHead::Kind::fetch:
      break;
  }
  const std::size_t blocks = server.blocks();
  const std::size_t versions_bytes = blocks * sizeof(std::uint64_t);
  const std::span<const std::uint64_t> versions = numbers<std::uint64_t>(in, blocks);
  ReplyHead reply;
  if (head.kind == RequestHead::Kind::push) {
    const std::span<const float> gradient = floats_in(server, head, in);
    reply = head.in_runs() ? server.push(head, versions, runs_in(server, head, in), gradient)
                           : server.push(head, versions, gradient);
    const bool refused = reply.status == ReplyHead::Status::late || reply.status >= ReplyHead::Status::fenced;
    if (head.wants_values == 0 || refused) {
      return reply;
    }
  }
  const std::span<std::uint64_t> out_versions = numbers<std::uint64_t>(out, blocks);
  const std::span<float> out_values = numbers<float>(out.subspan(versions_bytes), server.floats());
  // A gradient was computed from what the client has.
  const std::size_t floats = head.kind == RequestHead::Kind::fetch && head.in_runs()
                                 ? server.read(runs_in(server, head, in), out_versions, out_values)
                                 : server.read(versions, out_versions, out_values);
  reply.body_bytes = versions_bytes + floats * sizeof(float);
  return reply;
}

}  // namespace

bool is_change(RequestHead::Kind kind) {
  return kind != RequestHead::Kind::fetch && kind != RequestHead::Kind::work && kind != RequestHead::Kind::save;
}

ReplyHead answer(ParameterServer& server, const RequestHead& head, std::span<const std::byte> in,
                 std::span<std::byte> out) {
  ReplyHead reply = answer_of(server, head, in, out);
  reply.rate_factor = server.rate_factor();
  return reply;
}

}  // namespace distbelief
