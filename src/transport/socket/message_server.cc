#include "transport/socket/message_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <asio/dispatch.hpp>
#include <asio/post.hpp>
#include <map>
#include <system_error>
#include <thread>
#include <vector>

#include "transport/socket/endpoint.h"
#include "transport/socket/message_link.h"
#include "transport/socket/socket_listener.h"
#include "transport/socket/tls_stream.h"

namespace distbelief {
namespace {

constexpr int kAcceptsInARow = 64;
/// How long nobody is accepted when the system has no descriptor or memory left for another connection.
constexpr std::chrono::milliseconds kAcceptPause(100);

}  // namespace

class MessageServer::Loop {
 public:
  Loop(const Address& address, Handler& handler, const Options& options)
      : limits_(options.limits),
        handler_(handler),
        streams_(options.tls),
        listener_(address),
        listening_(io_, listener_.fd()),
        accept_pause_(io_),
        tick_timer_(io_) {}

  /// Once, when the server's object is whole: the handler may use it from then on.
  void start() {
    thread_ = std::jthread([this] { run(); });
  }

  ~Loop() {
    asio::post(io_, [this] { stop(); });
    thread_.join();
    if (listening_.is_open()) {
      listening_.release();
    }
  }

  const Address& address() const { return listener_.address(); }

  void send(ConnectionId id, const Message& message) {
    asio::post(io_, [this, id, frame = encode_message(message)]() mutable {
      if (const auto found = connections_.find(id); found != connections_.end()) {
        found->second->link->send(std::move(frame));
      }
    });
  }

  void close(ConnectionId id, const std::string& reason) {
    asio::post(io_, [this, id, reason] {
      if (const auto found = connections_.find(id); found != connections_.end()) {
        found->second->link->close(reason);
      }
    });
  }

  void trust(ConnectionId id) {
    asio::dispatch(io_, [this, id] {
      if (const auto found = connections_.find(id); found != connections_.end()) {
        found->second->trusted = true;
        found->second->link->set_longest(limits_.longest_message);
      }
    });
  }

 private:
  struct Connection : MessageLink::Owner {
    Connection(Loop& of, ConnectionId number) : loop(of), id(number) {}

    void link_opened(MessageLink& /*link*/) override {
      opened = true;
      loop.handler_.opened(id, peer);
    }
    void message_came(MessageLink& /*link*/, Message message) override {
      loop.handler_.message(id, std::move(message));
    }
    void link_closed(MessageLink& /*link*/, const std::string& reason) override { loop.forget(*this, reason); }

    Loop& loop;
    const ConnectionId id;
    const Clock::time_point since = Clock::now();
    std::string peer;
    bool opened = false;
    bool trusted = false;
    std::shared_ptr<MessageLink> link;  // shared with what the loop waits for
  };

  void run() {
    tick();
    wait_to_accept();
    io_.run();
  }

  void tick() {
    if (stopping_) {
      return;
    }
    const Clock::time_point now = Clock::now();
    handler_.tick(now);
    std::vector<std::shared_ptr<MessageLink>> late;  // closing changes connections_
    for (const auto& [id, connection] : connections_) {
      if (!connection->trusted && now - connection->since > limits_.until_trust) {
        late.push_back(connection->link);
      }
    }
    for (const auto& link : late) {
      link->close("did not say who it is in time");
    }
    closed_.clear();
    tick_timer_.expires_after(limits_.tick);
    tick_timer_.async_wait([this](const std::error_code& error) {
      if (!error) {
        tick();
      }
    });
  }

  void wait_to_accept() {
    listening_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const std::error_code& error) {
      if (!error) {
        accept_some();
      }
    });
  }

  void accept_some() {
    for (int i = 0; i < kAcceptsInARow && !stopping_; ++i) {
      SocketListener::Accepted accepted = listener_.accept();
      if (accepted.error == EAGAIN || accepted.error == EWOULDBLOCK) {
        break;
      }
      if (accepted.error != 0) {
        // No descriptors or memory: they wait in the system's queue until there are some again.
        accept_pause_.expires_after(kAcceptPause);
        accept_pause_.async_wait([this](const std::error_code& error) {
          if (!error) {
            accept_some();
          }
        });
        return;
      }
      admit(std::move(accepted.fd));
    }
    if (!stopping_) {
      wait_to_accept();
    }
  }

  void admit(FileDescriptor fd) {
    if (connections_.size() >= limits_.most_connections) {
      const auto oldest = std::ranges::find_if(connections_, [](const auto& at) { return !at.second->trusted; });
      if (oldest == connections_.end()) {
        return;
      }
      oldest->second->link->close("had to make room: there are too many connections");
    }
    const ConnectionId id{next_id_++};
    Connection& connection = *connections_.emplace(id, std::make_unique<Connection>(*this, id)).first->second;
    connection.peer = peer_text(fd.get());
    try {
      connection.link = std::make_shared<MessageLink>(io_, streams_.make(std::move(fd), StreamMaker::Role::accepts),
                                                      connection, limits_.longest_before_trust, limits_.most_queued);
    } catch (const std::system_error&) {  // the system has no memory to watch one more
      connections_.erase(id);
      return;
    }
    connection.link->start();
  }

  /// Its link is closed and may still have something to write, but nothing to tell. The call comes from inside the
  /// connection, so it goes away later.
  void forget(Connection& connection, const std::string& reason) {
    const auto found = connections_.find(connection.id);
    closed_.push_back(std::move(found->second));
    connections_.erase(found);
    if (connection.opened && !stopping_) {
      handler_.closed(connection.id, reason);
    }
  }

  void stop() {
    stopping_ = true;
    listening_.release();
    accept_pause_.cancel();
    tick_timer_.cancel();
    while (!connections_.empty()) {
      connections_.begin()->second->link->close("the server ended");
    }
  }

  const Limits limits_;
  Handler& handler_;
  const StreamMaker streams_;
  SocketListener listener_;
  std::uint64_t next_id_ = 1;  // this and all below but thread_ on the thread only
  bool stopping_ = false;
  asio::io_context io_{1};                                           // before what uses it, and so gone after that
  std::map<ConnectionId, std::unique_ptr<Connection>> connections_;  // in the order of their opening
  std::vector<std::unique_ptr<Connection>> closed_;                  // no more than a tick long
  asio::posix::stream_descriptor listening_;                         // borrows listener_'s
  asio::steady_timer accept_pause_;
  asio::steady_timer tick_timer_;
  std::jthread thread_;
};

MessageServer::MessageServer(const Address& address, Handler& handler, const Options& options)
    : loop_(std::make_unique<Loop>(address, handler, options)) {
  loop_->start();
}
MessageServer::~MessageServer() = default;
const Address& MessageServer::address() const { return loop_->address(); }
void MessageServer::send(ConnectionId id, const Message& message) { loop_->send(id, message); }
void MessageServer::close(ConnectionId id, const std::string& reason) { loop_->close(id, reason); }
void MessageServer::trust(ConnectionId id) { loop_->trust(id); }

}  // namespace distbelief
