#include "transport/socket/socket_handshake.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "transport/frame.h"
#include "transport/socket/endpoint.h"
#include "transport/socket/socket_link.h"
#include "transport/socket/tls_stream.h"

namespace distbelief {
namespace {

constexpr std::size_t kLongestText = 256;    // of token and job
constexpr std::size_t kLongestHello = 1024;  // of the whole, and of a refusal
constexpr std::size_t kMostStrangers = 256;  // connections that have not said who they are
constexpr std::chrono::seconds kStrangersTime(5);
constexpr std::chrono::milliseconds kRetryAfter(20);
constexpr std::chrono::milliseconds kPauseWithoutDescriptors(50);
constexpr std::chrono::seconds kDialTime(2);            // for once
constexpr std::chrono::milliseconds kBetweenLooks(50);  // for who is given up
// Where all begin together: so long it is not believed that nobody is there, or somebody else. Who died is known
// earlier.
constexpr std::chrono::seconds kDoubtTime(15);
constexpr std::uint32_t kLateView = 0;  // of a hello that is for a process of any view

/// Takes as long for any two texts of this length, so that answering time tells nothing about the secret.
bool same_secret(std::string_view given, std::string_view secret) {
  unsigned difference = given.size() == secret.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i) {
    difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(i < secret.size() ? secret[i] : 0);
  }
  return difference == 0;
}

/// Who speaks to whom, and that it may.
struct Hello {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::string job = {};
  std::string token = {};

  std::string encode() const {
    std::string body;
    append_little_endian(body, from);
    append_little_endian(body, to);
    append_little_endian(body, static_cast<std::uint16_t>(job.size()));
    append_little_endian(body, static_cast<std::uint16_t>(token.size()));
    return body + job + token;
  }

  static std::optional<Hello> parse(std::string_view body) {
    if (body.size() < 12) {
      return std::nullopt;
    }
    Hello hello;
    hello.from = read_little_endian<std::uint32_t>(body.data());
    hello.to = read_little_endian<std::uint32_t>(body.data() + 4);
    const std::size_t job_bytes = read_little_endian<std::uint16_t>(body.data() + 8);
    const std::size_t token_bytes = read_little_endian<std::uint16_t>(body.data() + 10);
    if (body.size() != 12 + job_bytes + token_bytes) {
      return std::nullopt;
    }
    hello.job = body.substr(12, job_bytes);
    hello.token = body.substr(12 + job_bytes);
    return hello;
  }
};

std::string frame_of(DataFrame kind, std::uint32_t view, std::string_view body) {
  return encode_frame({.kind = static_cast<std::uint16_t>(kind), .epoch = view}, std::as_bytes(std::span(body)));
}

/// A connection on which the two ends get to know each other.
struct Introduction {
  enum class Step : std::uint8_t { securing, writing, reading, done, failed, redial };
  std::unique_ptr<Stream> stream;
  bool dialled = false;
  Rank peer = {};  // of an accepted one: once its hello was good
  Clock::time_point since = Clock::now();
  Step step = Step::securing;
  short waits_for = POLLIN | POLLOUT;
  std::string out = {};
  std::string in = {};
  std::string reason = {};  // of failed and redial
};

class Meeting {
 public:
  using GivenUp = std::function<bool(Rank)>;
  /// `is_late`: some came later than others, and are in views of their own.
  Meeting(Rank self, std::map<int, Address> wanted, SocketListener& listener, const SocketFabricOptions& options,
          Clock::time_point deadline, GivenUp given_up, bool is_late)
      : self_(self),
        wanted_(std::move(wanted)),
        listener_(listener),
        options_(options),
        maker_(options.tls),
        deadline_(deadline),
        given_up_(std::move(given_up)),
        is_late_(is_late) {}

  LateStreams run() {
    leave_out_given_up();
    const std::map<int, Address> all = wanted_;
    for (const auto& [peer, address] : all) {
      if (peer < self_.value && wanted_.contains(peer) && !failure_) {
        dial(Rank{peer});
        leave_out_given_up();
      }
    }
    for (leave_out_given_up(); !failure_ && streams_.size() < wanted_.size(); leave_out_given_up()) {
      if (Clock::now() >= deadline_) {
        blame_the_late();
        break;
      }
      wait_for_events();
      accept_strangers();
      advance_all();
    }
    if (failure_) {
      return std::move(*failure_);
    }
    return {.streams = std::move(streams_), .view = view_};
  }

 private:
  using Step = Introduction::Step;

  std::string name(Rank peer) const { return fmt::format("rank {} ({})", peer.value, wanted_.at(peer.value).text()); }

  /// Somebody will tell who is not to be waited for.
  bool is_told() const { return given_up_ != nullptr; }

  void leave_out_given_up() {
    if (!is_told()) {
      return;
    }
    std::erase_if(wanted_,
                  [&](const auto& entry) { return !streams_.contains(entry.first) && given_up_(Rank{entry.first}); });
    std::erase_if(introductions_,
                  [&](const Introduction& at) { return at.peer.value >= 0 && !wanted_.contains(at.peer.value); });
  }

  void fail(Rank peer, const std::string& reason) {
    if (!failure_) {
      failure_ = LateStreams{.streams = {}, .culprit = peer, .reason = fmt::format("{}: {}", name(peer), reason)};
    }
  }

  void dial(Rank peer) {
    OpenedConnection opened = open_connection(wanted_.at(peer.value), std::min(deadline_, Clock::now() + kDialTime));
    if (opened.refused && !tries_again(peer, opened.reason)) {
      fail(peer, opened.reason);
      return;
    }
    Introduction& made = introductions_.emplace_back();
    made.dialled = true;
    made.peer = peer;
    if (!opened.fd) {
      made.reason = opened.reason;
      made.step = Step::redial;
      return;
    }
    made.stream = maker_.make(std::move(opened.fd), StreamMaker::Role::dials);
    made.out = frame_of(DataFrame::hello, is_late_ ? kLateView : options_.view, hello_to(peer).encode());
  }

  /// After something that is final, unless that peer is gone, or not there yet.
  bool tries_again(Rank peer, const std::string& reason) {
    Trouble& trouble = troubles_.try_emplace(peer.value, Trouble{.since = Clock::now()}).first->second;
    trouble.reason = reason;
    return is_late_ || (is_told() && Clock::now() < trouble.since + kDoubtTime);
  }

  Hello hello_to(Rank peer) const {
    return {static_cast<std::uint32_t>(self_.value), static_cast<std::uint32_t>(peer.value), options_.job,
            options_.token};
  }

  void accept_strangers() {
    if (Clock::now() < accept_again_) {
      return;
    }
    for (;;) {
      SocketListener::Accepted accepted = listener_.accept();
      if (!accepted.fd) {
        if (accepted.error != EAGAIN && accepted.error != EWOULDBLOCK) {
          accept_again_ = Clock::now() + kPauseWithoutDescriptors;  // no descriptors left
        }
        return;
      }
      const auto stranger = [](const Introduction& at) { return !at.dialled; };
      if (static_cast<std::size_t>(std::ranges::count_if(introductions_, stranger)) >= kMostStrangers) {
        introductions_.erase(std::ranges::find_if(introductions_, stranger));
      }
      introductions_.emplace_back().stream = maker_.make(std::move(accepted.fd), StreamMaker::Role::accepts);
    }
  }

  void wait_for_events() {
    std::vector<pollfd> entries;
    Clock::time_point until = is_told() ? std::min(deadline_, Clock::now() + kBetweenLooks) : deadline_;
    for (const Introduction& at : introductions_) {
      if (at.step == Step::redial) {
        until = std::min(until, at.since + kRetryAfter);
      } else {
        entries.push_back({at.stream->fd(), at.waits_for, 0});
      }
      if (!at.dialled) {
        until = std::min(until, at.since + kStrangersTime);
      }
    }
    if (Clock::now() >= accept_again_) {
      entries.push_back({listener_.fd(), POLLIN, 0});
    } else {
      until = std::min(until, accept_again_);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    ::poll(entries.data(), entries.size(), static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000)));
  }

  void advance_all() {
    std::vector<Rank> dial_again;
    for (Introduction& at : introductions_) {
      advance(at);
      const bool out_of_time = !at.dialled && Clock::now() - at.since > kStrangersTime;
      if (at.step == Step::failed && at.dialled && tries_again(at.peer, at.reason)) {
        at.step = Step::redial;
        at.since = Clock::now();
      }
      if (at.step == Step::done) {
        streams_[at.peer.value] = std::move(at.stream);
      } else if (at.step == Step::failed && at.dialled) {
        fail(at.peer, at.reason);
      } else if (at.step == Step::redial && Clock::now() >= at.since + kRetryAfter) {
        dial_again.push_back(at.peer);
        at.step = Step::failed;
      } else if (out_of_time) {
        at.step = Step::failed;
      }
    }
    std::erase_if(introductions_,
                  [](const Introduction& at) { return at.step == Step::failed || at.step == Step::done; });
    for (const Rank peer : dial_again) {
      dial(peer);
    }
  }

  /// Goes as far as the socket lets it.
  void advance(Introduction& at) {
    if (at.step == Step::securing) {
      const Moved moved = at.stream->handshake();
      if (moved.state == Moved::State::moved) {
        at.step = at.dialled ? Step::writing : Step::reading;
      } else {
        note(at, moved);
      }
    }
    if (at.step == Step::writing && write(at)) {
      at.step = at.dialled ? Step::reading : at.peer.value >= 0 ? Step::done : Step::failed;
    }
    if (at.step == Step::reading && read(at)) {
      at.dialled ? take_answer(at) : take_hello(at);
      if (at.step == Step::writing && write(at)) {
        at.step = at.peer.value >= 0 ? Step::done : Step::failed;
      }
    }
  }

  static void note(Introduction& at, const Moved& moved) {
    if (moved.state == Moved::State::closed) {
      at.step = Step::failed;
      at.reason = moved.reason;
    }
    at.waits_for = moved.state == Moved::State::wants_write ? POLLOUT : POLLIN;
  }

  /// True when all of `out` went.
  static bool write(Introduction& at) {
    while (!at.out.empty()) {
      const iovec part = {at.out.data(), at.out.size()};
      const Moved moved = at.stream->write(std::span(&part, 1));
      if (moved.state != Moved::State::moved) {
        note(at, moved);
        return false;
      }
      at.out.erase(0, moved.bytes);
    }
    return true;
  }

  /// True when `in` has one whole frame, and not a byte of what follows it, which is for the link.
  static bool read(Introduction& at) {
    for (;;) {
      std::size_t wanted = kFrameHeaderBytes;
      if (at.in.size() >= kFrameHeaderBytes) {
        const ParsedFrameHeader parsed = parse(at);
        if (!parsed.ok()) {
          at.step = Step::failed;
          at.reason = parsed.reason;
          return false;
        }
        wanted += parsed.header.length;
      }
      if (at.in.size() == wanted) {
        return true;
      }
      char scratch[kFrameHeaderBytes + kLongestHello];
      const iovec part = {scratch, wanted - at.in.size()};
      const Moved moved = at.stream->read(std::span(&part, 1));
      if (moved.state != Moved::State::moved) {
        note(at, moved);
        return false;
      }
      at.in.append(scratch, moved.bytes);
    }
  }

  static ParsedFrameHeader parse(const Introduction& at) {
    const auto bytes = std::as_bytes(std::span(at.in)).first<kFrameHeaderBytes>();
    return parse_frame_header(bytes, kLongestHello);
  }

  /// What is wrong with a hello or welcome; empty when nothing is.
  std::string objection(const FrameHeader& header, const std::optional<Hello>& hello, bool dialled) const {
    if (!hello) {
      return "sent a hello that is none";
    }
    // The secret first: who does not have it learns nothing.
    if (!same_secret(hello->token, options_.token)) {
      return "does not have the job's token";
    }
    if (hello->job != options_.job) {
      return fmt::format("belongs to job '{}', not '{}'", hello->job, options_.job);
    }
    const bool any_view = is_late_ && (dialled || header.epoch == kLateView);
    if (header.epoch != options_.view && !any_view) {
      return fmt::format("is in view {}, not {}", header.epoch, options_.view);
    }
    if (hello->to != static_cast<std::uint32_t>(self_.value)) {
      return fmt::format("looks for rank {} where rank {} is", hello->to, self_.value);
    }
    return "";
  }

  void take_hello(Introduction& at) {
    const FrameHeader header = parse(at).header;
    const std::optional<Hello> hello = Hello::parse(std::string_view(at.in).substr(kFrameHeaderBytes));
    if (header.kind != static_cast<std::uint16_t>(DataFrame::hello)) {
      at.step = Step::failed;
      return;
    }
    std::string wrong = objection(header, hello, false);
    if (wrong.empty()) {
      const int from = static_cast<int>(hello->from);
      if (from <= self_.value || !wanted_.contains(from)) {
        wrong = fmt::format("says it is rank {}, which does not dial rank {}", hello->from, self_.value);
      } else if (streams_.contains(from) || is_expected(Rank{from})) {
        wrong = fmt::format("says it is rank {}, which has connected already", hello->from);
      }
    }
    at.step = Step::writing;
    if (!wrong.empty()) {
      at.out = frame_of(DataFrame::refusal, options_.view, wrong);
      return;
    }
    at.peer = Rank{static_cast<int>(hello->from)};
    at.out = frame_of(DataFrame::welcome, options_.view, hello_to(at.peer).encode());
  }

  bool is_expected(Rank peer) const {
    return std::ranges::any_of(introductions_, [&](const Introduction& at) { return at.peer == peer; });
  }

  void take_answer(Introduction& at) {
    const FrameHeader header = parse(at).header;
    const std::string_view body = std::string_view(at.in).substr(kFrameHeaderBytes);
    at.step = Step::failed;
    if (header.kind == static_cast<std::uint16_t>(DataFrame::refusal)) {
      at.reason = fmt::format("refused this process, because it {}", body);
      if (header.epoch < options_.view) {
        at.step = Step::redial;
        at.since = Clock::now();
      }
    } else if (header.kind != static_cast<std::uint16_t>(DataFrame::welcome)) {
      at.reason = fmt::format("answered with a frame of kind {}", header.kind);
    } else {
      const std::optional<Hello> hello = Hello::parse(body);
      at.reason = objection(header, hello, true);
      if (at.reason.empty() && hello->from != static_cast<std::uint32_t>(at.peer.value)) {
        at.reason = fmt::format("says that it is rank {}", hello->from);
      }
      if (at.reason.empty()) {
        at.step = Step::done;
        view_ = std::max(view_, header.epoch);
      }
    }
  }

  void blame_the_late() {
    for (const auto& [rank, address] : wanted_) {
      const Rank peer{rank};
      if (!streams_.contains(rank)) {
        const auto at = std::ranges::find(introductions_, peer, &Introduction::peer);
        const auto trouble = troubles_.find(rank);
        fail(peer, at != introductions_.end() && !at->reason.empty() ? at->reason
                   : trouble != troubles_.end()                      ? trouble->second.reason
                   : peer < self_                                    ? "did not answer in time"
                                                                     : "did not connect in time");
        return;
      }
    }
  }

  const Rank self_;
  std::map<int, Address> wanted_;  // by rank; without those that were given up
  SocketListener& listener_;
  const SocketFabricOptions& options_;
  const StreamMaker maker_;
  const Clock::time_point deadline_;
  const GivenUp given_up_;
  const bool is_late_;
  std::map<int, std::unique_ptr<Stream>> streams_;  // by rank
  std::uint32_t view_ = 0;                          // the newest of those who were dialled
  std::vector<Introduction> introductions_;
  struct Trouble {
    std::string reason = {};
    Clock::time_point since = {};
  };
  std::map<int, Trouble> troubles_;  // with those that were dialled, by rank
  std::optional<LateStreams> failure_;
  Clock::time_point accept_again_ = {};
};

}  // namespace

ConnectedStreams connect_streams(Rank self, std::span<const Address> addresses, SocketListener& listener,
                                 const SocketFabricOptions& options, const std::function<bool(Rank)>& given_up,
                                 Clock::time_point deadline) {
  check(self.value >= 0 && static_cast<std::size_t>(self.value) < addresses.size(), "every rank has an address");
  check(options.token.size() <= kLongestText && options.job.size() <= kLongestText, "token and job have 256 bytes");
  std::map<int, Address> wanted;
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
    if (static_cast<int>(rank) != self.value) {
      wanted.emplace(static_cast<int>(rank), addresses[rank]);
    }
  }
  LateStreams met = Meeting(self, std::move(wanted), listener, options, deadline, given_up, false).run();
  if (met.culprit.value >= 0) {
    return {{}, met.culprit, std::move(met.reason)};
  }
  ConnectedStreams connected;
  connected.streams.resize(addresses.size());
  for (auto& [rank, stream] : met.streams) {
    connected.streams[static_cast<std::size_t>(rank)] = std::move(stream);
  }
  return connected;
}

LateStreams connect_late_streams(Rank self, const std::map<int, Address>& peers, SocketListener& listener,
                                 const SocketFabricOptions& options, const std::function<bool(Rank)>& given_up,
                                 Clock::time_point deadline) {
  check(!peers.contains(self.value), "a peer is another rank");
  return Meeting(self, peers, listener, options, deadline, given_up, true).run();
}

}  // namespace distbelief
