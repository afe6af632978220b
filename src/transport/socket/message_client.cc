#include "transport/socket/message_client.h"

#include <fmt/format.h>
#include <poll.h>

#include <asio/executor_work_guard.hpp>
#include <asio/post.hpp>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "transport/socket/endpoint.h"
#include "transport/socket/message_link.h"
#include "transport/socket/stream.h"
#include "transport/socket/tls_stream.h"

namespace distbelief {
namespace {

constexpr std::size_t kMostUnfetched = std::size_t{8} << 20;

}  // namespace

/// The thread that reads and writes, and what it shares with the others.
class MessageClient::Loop final : public MessageLink::Owner {
 public:
  Loop(std::unique_ptr<Stream> stream, const Options& options)
      : most_queued_(options.most_queued),
        work_(asio::make_work_guard(io_)),
        link_(
            std::make_shared<MessageLink>(io_, std::move(stream), *this, options.longest_message, options.most_queued)),
        thread_([this] {
          link_->start();
          io_.run();
        }) {}

  ~Loop() override {
    close();
    work_.reset();  // the thread ends when the link has nothing left to do
  }

  bool send(const Message& message) {
    std::string frame = encode_message(message);
    const std::size_t size = frame.size();
    if (closed_.load(std::memory_order_relaxed)) {
      return false;
    }
    const bool fits = queued_.fetch_add(size) + size <= most_queued_;
    if (!fits) {
      // Nothing more is taken, and the frame does not lie around until the thread comes to it.
      closed_ = true;
      frame.clear();
    }
    asio::post(io_, [this, fits, frame = std::move(frame)]() mutable {
      fits ? link_->send(std::move(frame)) : link_->close("reads too slowly: too many messages wait for it");
    });
    return fits;
  }

  Received receive(Clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, deadline, [&] { return reason_.has_value() || !inbox_.empty(); })) {
      return {Received::Kind::timed_out};
    }
    if (inbox_.empty()) {
      return {Received::Kind::closed, {}, *reason_};
    }
    Received received = {Received::Kind::message, std::move(inbox_.front())};
    inbox_.pop_front();
    unfetched_ -= received.message.body.size();
    if (paused_ && unfetched_ <= kMostUnfetched / 2) {
      paused_ = false;
      asio::post(io_, [this] { link_->pause_reading(false); });
    }
    return received;
  }

  void close() {
    closed_ = true;
    set_reason("closed by this process");
    asio::post(io_, [this] { link_->close("closed by this process"); });
  }

 private:
  void link_opened(MessageLink& /*link*/) override {}

  void message_came(MessageLink& link, Message message) override {
    const std::scoped_lock lock(mutex_);
    unfetched_ += message.body.size();
    inbox_.push_back(std::move(message));
    if (!paused_ && unfetched_ > kMostUnfetched) {
      paused_ = true;
      link.pause_reading(true);
    }
    changed_.notify_all();
  }

  void link_closed(MessageLink& /*link*/, const std::string& reason) override {
    closed_ = true;
    set_reason(reason);
  }

  void bytes_written(std::size_t bytes) override { queued_ -= bytes; }

  /// Of several reasons the first stays.
  void set_reason(const std::string& reason) {
    const std::scoped_lock lock(mutex_);
    if (!reason_) {
      reason_ = reason;
    }
    changed_.notify_all();
  }

  const std::size_t most_queued_;
  std::atomic<bool> closed_ = false;
  std::atomic<std::size_t> queued_ = 0;  // bytes that send() took and the link has not written

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Message> inbox_;          // guarded by mutex_
  std::size_t unfetched_ = 0;          // bytes in inbox_; guarded by mutex_
  bool paused_ = false;                // guarded by mutex_
  std::optional<std::string> reason_;  // why it is closed; guarded by mutex_

  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::shared_ptr<MessageLink> link_;  // shared with what the loop waits for; on the thread only
  std::jthread thread_;                // last: joined first
};

MessageClient::Connected MessageClient::connect(const Address& address, Clock::time_point deadline,
                                                const Options& options) {
  const StreamMaker streams(options.tls);
  OpenedConnection opened = open_connection(address, deadline);
  if (!opened.fd) {
    return {nullptr, fmt::format("{}: {}", address.text(), opened.reason), opened.refused};
  }
  std::unique_ptr<Stream> stream = streams.make(std::move(opened.fd), StreamMaker::Role::dials);
  for (;;) {
    const Moved moved = stream->handshake();
    if (moved.state == Moved::State::moved) {
      break;
    }
    if (moved.state == Moved::State::closed) {
      return {nullptr, fmt::format("{}: {}", address.text(), moved.reason)};
    }
    const short event = moved.state == Moved::State::wants_read ? POLLIN : POLLOUT;
    if (!wait_for_events(stream->fd(), event, deadline)) {
      return {nullptr, fmt::format("{}: did not answer in time", address.text())};
    }
  }
  return {std::unique_ptr<MessageClient>(new MessageClient(std::make_unique<Loop>(std::move(stream), options)))};
}

MessageClient::MessageClient(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
MessageClient::~MessageClient() = default;
bool MessageClient::send(const Message& message) { return loop_->send(message); }
MessageClient::Received MessageClient::receive(Clock::time_point deadline) { return loop_->receive(deadline); }
void MessageClient::close() { loop_->close(); }

}  // namespace distbelief
