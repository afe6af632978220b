#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "transport/address.h"
#include "transport/message.h"
#include "transport/tls_options.h"

namespace distbelief {

/// One end of a connection to a MessageServer. Messages arrive whole, unchanged and in order, or the connection is
/// closed; there is no reconnecting: a new connection is a new object. Has a thread of its own that reads and writes,
/// so that a slow receive() never keeps a message from going out. Any thread may use it, but only one calls receive().
class MessageClient {
 public:
  struct Options {
    std::optional<TlsOptions> tls = {};
    std::size_t longest_message = std::size_t{16} << 20;  ///< a longer one from the server closes the connection
    std::size_t most_queued = std::size_t{64} << 20;      ///< bytes that wait to be sent; more close the connection
  };

  struct [[nodiscard]] Connected {
    std::unique_ptr<MessageClient> client;
    std::string reason = {};  ///< for people, when there is no client: "tcp:node7:4000: Connection refused"
    bool refused = false;     ///< the machine is there, but nobody listens
  };

  /// Waits until the connection stands, at most until the deadline. With TLS the server has then proven itself; whether
  /// it accepts this process's certificate shows with the first receive(), as TLS 1.3 has it.
  /// That nobody listens is a value; only files of `tls` that cannot be used throw, an InputError that names the file.
  /// A unix address whose server's queue is full is tried until the deadline; all other failures are told at once.
  static Connected connect(const Address& address, Clock::time_point deadline, const Options& options);
  static Connected connect(const Address& address, Clock::time_point deadline) {
    return connect(address, deadline, Options());
  }

  /// Closes; takes at most a second, and that only when the server does not read.
  ~MessageClient();
  MessageClient(const MessageClient&) = delete;
  MessageClient& operator=(const MessageClient&) = delete;

  /// Queues the message and returns; never waits for the network. False: the connection is closed, or becomes so by
  /// this message because too much waits already. True promises nothing about arrival. Thread-safe.
  [[nodiscard]] bool send(const Message& message);

  struct [[nodiscard]] Received {
    enum class Kind : std::uint8_t { message, timed_out, closed };
    Kind kind = Kind::message;
    Message message = {};
    std::string reason = {};  ///< of closed, for people: "closed the connection"
  };

  /// The next message. What came before the connection closed still comes out; then closed, each time with the same
  /// reason. One thread. When messages are not fetched, the server has to wait with more after a few megabytes.
  Received receive(Clock::time_point deadline);

  /// Ends the connection, and receive() with closed ("closed by this process"). What send() took before still goes out,
  /// for a second at most. Returns at once; thread-safe; may be called again.
  void close();

 private:
  class Loop;
  explicit MessageClient(std::unique_ptr<Loop> loop);

  std::unique_ptr<Loop> loop_;
};

}  // namespace distbelief
