#pragma once

// Inside socket/ only: includes Asio, which others should not have to read.

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>

#include "transport/message.h"
#include "transport/message_reader.h"
#include "transport/socket/stream.h"

namespace distbelief {

/// Messages over one connection, read and written by the loop it lives on, and all on the loop's thread. Held by
/// shared_ptr, because what the loop waits for holds it too, until it is closed.
class MessageLink : public std::enable_shared_from_this<MessageLink> {
 public:
  /// Called by the link on the loop's thread; must live until link_closed().
  class Owner {
   public:
    virtual ~Owner() = default;
    /// Messages can be exchanged. Once, before all others.
    virtual void link_opened(MessageLink& link) = 0;
    virtual void message_came(MessageLink& link, Message message) = 0;
    /// Once, also when it never opened; nothing is called afterwards.
    virtual void link_closed(MessageLink& link, const std::string& reason) = 0;
    /// So many bytes of messages left the queue.
    virtual void bytes_written(std::size_t /*bytes*/) {}
  };

  /// A message of more than `longest` bytes, or more than `most_queued` bytes that the other end does not read, close
  /// it.
  MessageLink(asio::io_context& loop, std::unique_ptr<Stream> stream, Owner& owner, std::size_t longest,
              std::size_t most_queued);
  ~MessageLink();
  MessageLink(const MessageLink&) = delete;
  MessageLink& operator=(const MessageLink&) = delete;

  /// To be called once, outside of the constructor.
  void start();
  void send(std::string frame);
  /// Tells the owner at once. What was sent before still goes out, for a second at most.
  void close(const std::string& reason);
  void set_longest(std::size_t bytes) { reader_.set_longest(bytes); }
  /// The other end then has to wait with what it writes.
  void pause_reading(bool pause);
  int fd() const { return stream_->fd(); }

 private:
  enum class State { handshaking, open, flushing, draining, closed };

  void shake_hands();
  void read_some();
  void write_some();
  void wait_to_read();
  void wait_to_write();
  void wait_for(const Moved& moved);
  void ready();
  void broken(const std::string& reason);
  void drain();
  void finish();

  std::unique_ptr<Stream> stream_;
  asio::posix::stream_descriptor descriptor_;  // borrows the stream's
  asio::steady_timer linger_;
  Owner& owner_;
  MessageReader reader_;
  const std::size_t most_queued_;
  State state_ = State::handshaking;
  bool waits_to_read_ = false;
  bool waits_to_write_ = false;
  bool reading_paused_ = false;
  std::deque<std::string> queue_;
  std::size_t front_written_ = 0;  // of queue_.front()
  std::size_t queued_ = 0;         // bytes in queue_ that are not written
};

}  // namespace distbelief
