#pragma once

#include <chrono>
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

/// A connection of a MessageServer; numbers are never given twice.
struct ConnectionId {
  std::uint64_t value = 0;
  friend auto operator<=>(const ConnectionId&, const ConnectionId&) = default;
};

/// Listens on an address, and exchanges messages with whoever connects with a MessageClient. One thread of its own does
/// all of it and calls the handler, so a handler needs no locks among its own functions, and must not block.
///
/// It believes nothing: whoever sends something other than messages, messages that are too long, or nothing, is closed
/// with a reason, and the others do not notice. A connection is to be trusted by the handler, after a message that
/// proves who it is; until then it has little time and may send little.
class MessageServer {
 public:
  /// What happens on the server's thread; the functions must not throw. They may call all functions of the server.
  class Handler {
   public:
    virtual ~Handler() = default;
    /// `peer` is what to call it in messages: "10.0.0.7:41234", or "pid 4711" on a unix socket. With TLS it has proven
    /// that it belongs to the job.
    virtual void opened(ConnectionId id, const std::string& peer) = 0;
    virtual void message(ConnectionId id, Message message) = 0;
    /// Once for each connection that was opened, also after close(); nothing of it comes later. `reason` is for people
    /// and has the other end as its subject, as in "closed the connection", unless close() gave it.
    virtual void closed(ConnectionId id, const std::string& reason) = 0;
    /// At least every Limits::tick when nothing else keeps the thread; the first when the server starts.
    virtual void tick(Clock::time_point /*now*/) {}
  };

  struct Limits {
    /// More than that: the connection that has waited longest for trust is closed in favour of the new one; if all are
    /// trusted, the new one is.
    std::size_t most_connections = 4096;
    std::size_t longest_message = std::size_t{16} << 20;       ///< bytes of a body
    std::size_t longest_before_trust = std::size_t{64} << 10;  ///< the same, until trust()
    std::chrono::milliseconds until_trust{5000};               ///< then a connection that is not trusted is closed
    std::size_t most_queued = std::size_t{64} << 20;           ///< bytes that wait for one connection; more close it
    std::chrono::milliseconds tick{100};
  };

  struct Options {
    Limits limits = {};
    std::optional<TlsOptions> tls = {};
  };

  /// Listens when it returns. Throws InputError that names the address or the TLS file. A unix socket's file that a
  /// dead server left is replaced, one of a living server is refused. `handler` must live until the destructor
  /// returned. It may be called before the constructor returned, with the server usable by then: let the handler own
  /// the server as its last member, rather than be told of it later.
  MessageServer(const Address& address, Handler& handler, const Options& options);
  MessageServer(const Address& address, Handler& handler) : MessageServer(address, handler, Options()) {}
  /// Closes all connections; the handler is not called any more, not even for those. What was sent still goes out: this
  /// takes at most a second, and that only when somebody does not read. The file of a unix socket goes away.
  ~MessageServer();
  MessageServer(const MessageServer&) = delete;
  MessageServer& operator=(const MessageServer&) = delete;

  /// Where it listens, with the port that the system chose.
  const Address& address() const;

  /// All of these return at once and are thread-safe, and nothing happens when the connection is closed already.
  /// Messages of one thread to one connection go out in the order of the calls; what the handler sees because of a
  /// call, it sees after the function it is in.
  void send(ConnectionId id, const Message& message);
  /// What was sent before still goes out, for a second at most: a refusal, then close(), tells the other end why.
  void close(ConnectionId id, const std::string& reason);
  /// The connection may stay, and send as much as Limits::longest_message allows.
  void trust(ConnectionId id);

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace distbelief
