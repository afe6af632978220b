#include "transport/socket/http_post.h"

#include <fmt/format.h>
#include <poll.h>

#include <array>
#include <charconv>
#include <optional>

#include "transport/socket/endpoint.h"

namespace distbelief {
namespace {

constexpr std::string_view kHeadEnd = "\r\n\r\n";

/// Calls `step` until it moved or the connection is closed; what it wants is waited for.
template <typename Step>
Moved move_until(Stream& stream, Clock::time_point deadline, Step&& step) {
  for (;;) {
    const Moved moved = step();
    if (moved.state == Moved::State::moved || moved.state == Moved::State::closed) {
      return moved;
    }
    const short event = moved.state == Moved::State::wants_read ? POLLIN : POLLOUT;
    if (!wait_for_events(stream.fd(), event, deadline)) {
      return {Moved::State::closed, 0, "did not answer in time"};
    }
  }
}

/// Empty, or why it could not be sent.
std::string send_all(Stream& stream, std::string bytes, Clock::time_point deadline) {
  for (std::size_t sent = 0; sent < bytes.size();) {
    const std::array<iovec, 1> left = {{{bytes.data() + sent, bytes.size() - sent}}};
    const Moved moved = move_until(stream, deadline, [&] { return stream.write(left); });
    if (moved.state == Moved::State::closed) {
      return moved.reason;
    }
    sent += moved.bytes;
  }
  return {};
}

/// The number after "HTTP/1.1 "; 0 when that is not what it begins with.
int status_of(std::string_view answer) {
  const std::size_t space = answer.find(' ');
  int status = 0;
  if (answer.starts_with("HTTP/1.") && space != std::string_view::npos && space + 4 <= answer.size()) {
    std::from_chars(answer.data() + space + 1, answer.data() + space + 4, status);
  }
  return status;
}

/// What the head promises, if it does.
std::optional<std::size_t> content_length(std::string_view head) {
  constexpr std::string_view kName = "content-length:";
  for (std::size_t at = head.find('\n'); at != std::string_view::npos; at = head.find('\n', at + 1)) {
    std::string_view line = head.substr(at + 1);
    std::string name(line.substr(0, kName.size()));
    for (char& letter : name) {
      letter = letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
    }
    if (name == kName) {
      line.remove_prefix(kName.size());
      line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
      std::size_t length = 0;
      return std::from_chars(line.data(), line.data() + line.size(), length).ec == std::errc() ? std::optional(length)
                                                                                               : std::nullopt;
    }
  }
  return std::nullopt;
}

HttpAnswer parse_answer(std::string_view answer) {
  const std::size_t head_end = answer.find(kHeadEnd);
  const int status = status_of(answer);
  if (head_end == std::string_view::npos || status == 0) {
    return {.reason = answer.empty() ? "closed the connection" : "answered what is not HTTP"};
  }
  const std::string_view body = answer.substr(head_end + kHeadEnd.size());
  if (const auto promised = content_length(answer.substr(0, head_end)); promised && *promised != body.size()) {
    return {.reason = "closed the connection in the middle of its answer"};
  }
  return {.status = status, .body = std::string(body)};
}

}  // namespace

HttpAnswer http_post(const Address& server, const StreamMaker& streams, std::string_view path, std::string_view json,
                     Clock::time_point deadline, std::size_t longest) {
  OpenedConnection opened = open_connection(server, deadline);
  if (!opened.fd) {
    return {.reason = opened.reason};
  }
  const std::unique_ptr<Stream> stream = streams.make(std::move(opened.fd), StreamMaker::Role::dials);
  if (const Moved moved = move_until(*stream, deadline, [&] { return stream->handshake(); });
      moved.state == Moved::State::closed) {
    return {.reason = moved.reason};
  }
  const std::string request =
      fmt::format("POST {} HTTP/1.0\r\nHost: {}:{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
                  path, server.host, server.port, json.size(), json);
  if (const std::string reason = send_all(*stream, request, deadline); !reason.empty()) {
    return {.reason = reason};
  }
  std::string answer;
  std::array<char, 16384> bytes;
  for (;;) {
    const std::array<iovec, 1> into = {{{bytes.data(), bytes.size()}}};
    const Moved moved = move_until(*stream, deadline, [&] { return stream->read(into); });
    if (moved.state == Moved::State::closed) {
      // When time ran out there may still be a whole answer, from a server that does not close.
      HttpAnswer parsed = parse_answer(answer);
      return parsed.status == 0 && answer.empty() ? HttpAnswer{.reason = moved.reason} : parsed;
    }
    answer.append(bytes.data(), moved.bytes);
    if (answer.size() > longest) {
      return {.reason = fmt::format("answered more than {} bytes", longest)};
    }
  }
}

}  // namespace distbelief
