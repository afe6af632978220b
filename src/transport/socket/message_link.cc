#include "transport/socket/message_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <asio/post.hpp>
#include <chrono>

namespace distbelief {
namespace {

constexpr std::chrono::seconds kLinger(1);
constexpr std::size_t kReadBytes = 64 * 1024;
constexpr int kReadsInARow = 4;  // then it is the turn of other connections
constexpr std::size_t kMaxParts = 16;

}  // namespace

MessageLink::MessageLink(asio::io_context& loop, std::unique_ptr<Stream> stream, Owner& owner, std::size_t longest,
                         std::size_t most_queued)
    : stream_(std::move(stream)),
      descriptor_(loop, stream_->fd()),
      linger_(loop),
      owner_(owner),
      reader_(longest),
      most_queued_(most_queued) {}

MessageLink::~MessageLink() {
  if (descriptor_.is_open()) {
    descriptor_.release();
  }
}

void MessageLink::start() { shake_hands(); }

void MessageLink::shake_hands() {
  const Moved moved = stream_->handshake();
  if (moved.state == Moved::State::closed) {
    broken(moved.reason);
  } else if (moved.state != Moved::State::moved) {
    wait_for(moved);
  } else {
    state_ = State::open;
    owner_.link_opened(*this);
    write_some();
    read_some();
  }
}

void MessageLink::send(std::string frame) {
  if (state_ != State::open && state_ != State::handshaking) {
    return;
  }
  queued_ += frame.size();
  queue_.push_back(std::move(frame));
  if (queued_ > most_queued_) {
    broken(fmt::format("reads too slowly: {} bytes wait for it", queued_));
  } else if (state_ == State::open && !waits_to_write_) {
    write_some();
  }
}

void MessageLink::close(const std::string& reason) {
  if (state_ != State::open) {
    broken(reason);
    return;
  }
  state_ = State::flushing;
  linger_.expires_after(kLinger);
  linger_.async_wait([self = shared_from_this()](const std::error_code& error) {
    if (!error) {
      self->finish();
    }
  });
  owner_.link_closed(*this, reason);
  write_some();
}

/// The connection is of no use any more.
void MessageLink::broken(const std::string& reason) {
  const bool told = state_ == State::flushing || state_ == State::draining || state_ == State::closed;
  finish();
  if (!told) {
    owner_.link_closed(*this, reason);
  }
}

void MessageLink::finish() {
  if (state_ == State::closed) {
    return;
  }
  state_ = State::closed;
  linger_.cancel();
  descriptor_.release();  // ends the waits; the handlers come with an error and let go of this link
  stream_->end_writing();
  queue_.clear();
}

void MessageLink::pause_reading(bool pause) {
  reading_paused_ = pause;
  if (!pause && state_ == State::open && !waits_to_read_) {
    read_some();
  }
}

void MessageLink::wait_to_read() {
  if (waits_to_read_) {
    return;
  }
  waits_to_read_ = true;
  descriptor_.async_wait(asio::posix::stream_descriptor::wait_read,
                         [self = shared_from_this()](const std::error_code& error) {
                           self->waits_to_read_ = false;
                           if (!error) {
                             self->ready();
                           }
                         });
}

void MessageLink::wait_to_write() {
  if (waits_to_write_) {
    return;
  }
  waits_to_write_ = true;
  descriptor_.async_wait(asio::posix::stream_descriptor::wait_write,
                         [self = shared_from_this()](const std::error_code& error) {
                           self->waits_to_write_ = false;
                           if (!error) {
                             self->ready();
                           }
                         });
}

void MessageLink::wait_for(const Moved& moved) {
  moved.state == Moved::State::wants_read ? wait_to_read() : wait_to_write();
}

void MessageLink::ready() {
  switch (state_) {
    case State::handshaking:
      shake_hands();
      break;
    case State::open:
      write_some();
      read_some();
      break;
    case State::flushing:
      write_some();
      break;
    case State::draining:
      drain();
      break;
    case State::closed:
      break;
  }
}

void MessageLink::write_some() {
  while (!queue_.empty() && (state_ == State::open || state_ == State::flushing)) {
    std::array<iovec, kMaxParts> parts;
    const std::size_t count = std::min(queue_.size(), kMaxParts);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t skip = i == 0 ? front_written_ : 0;
      parts[i] = {queue_[i].data() + skip, queue_[i].size() - skip};
    }
    const Moved moved = stream_->write(std::span(parts).first(count));
    if (moved.state == Moved::State::closed) {
      queue_.clear();
      // What the other end said before it closed ("refused, because …") is worth more than that it closed.
      reading_paused_ = false;
      read_some();
      broken(moved.reason);
      return;
    }
    if (moved.state != Moved::State::moved) {
      wait_for(moved);
      return;
    }
    queued_ -= moved.bytes;
    if (state_ == State::open) {  // else the owner was told of the end, and may be gone
      owner_.bytes_written(moved.bytes);
    }
    front_written_ += moved.bytes;
    while (!queue_.empty() && front_written_ >= queue_.front().size()) {
      front_written_ -= queue_.front().size();
      queue_.pop_front();
    }
  }
  if (state_ == State::flushing) {
    state_ = State::draining;
    stream_->end_writing();
    drain();
  }
}

/// To close with bytes unread would reset the connection, and the other end might lose what it has not read.
void MessageLink::drain() {
  for (int round = 0; round < kReadsInARow && state_ == State::draining; ++round) {
    std::array<std::byte, kReadBytes> scratch;
    const iovec part = {scratch.data(), scratch.size()};
    const Moved moved = stream_->read(std::span(&part, 1));
    if (moved.state == Moved::State::closed) {
      finish();
      return;
    }
    if (moved.state != Moved::State::moved) {
      wait_for(moved);
      return;
    }
  }
  wait_to_read();
}

void MessageLink::read_some() {
  for (int round = 0; round < kReadsInARow; ++round) {
    if (state_ != State::open || reading_paused_) {
      return;
    }
    std::array<std::byte, kReadBytes> scratch;
    const iovec part = {scratch.data(), scratch.size()};
    const Moved moved = stream_->read(std::span(&part, 1));
    if (moved.state == Moved::State::closed) {
      broken(moved.reason);
      return;
    }
    if (moved.state != Moved::State::moved) {
      wait_for(moved);
      return;
    }
    std::span<const std::byte> bytes = std::span(scratch).first(moved.bytes);
    while (state_ == State::open) {
      MessageReader::Step step = reader_.next(bytes);
      if (step.kind == MessageReader::Step::Kind::needs_more) {
        break;
      }
      if (step.kind == MessageReader::Step::Kind::fault) {
        close(step.reason);
        return;
      }
      owner_.message_came(*this, std::move(step.message));
    }
  }
  asio::post(descriptor_.get_executor(), [self = shared_from_this()] { self->ready(); });
}

}  // namespace distbelief
