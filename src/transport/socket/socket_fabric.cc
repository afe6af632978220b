#include "transport/socket/socket_fabric.h"

#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"
#include "transport/socket/socket_handshake.h"
#include "transport/socket/socket_link.h"

namespace distbelief {
namespace {

/// How long wait() looks before it sleeps. A sleep and its end cost about as much.
constexpr std::chrono::microseconds kSpin(20);

class SocketFabric : public Fabric {
 public:
  SocketFabric(Rank rank, std::vector<std::unique_ptr<Stream>> streams, std::span<const Address> addresses,
               const SocketFabricOptions& options)
      : rank_(rank), work_(asio::make_work_guard(io_)) {
    for (std::size_t i = 0; i < streams.size(); ++i) {
      const Rank peer{static_cast<int>(i)};
      if (peer == rank) {
        links_.push_back(nullptr);
        continue;
      }
      // Who dialled whom decides whose kind of address the connection has.
      const Address& address = addresses[std::min(i, static_cast<std::size_t>(rank.value))];
      // Encrypted bytes are checked by TLS, and those between processes of one host by nobody.
      const bool checksums = address.kind == Address::Kind::tcp && !options.tls;
      links_.push_back(std::make_unique<WatchedLink>(io_, peer, std::move(streams[i]), checksums, options.most_early));
    }
  }

  ~SocketFabric() override {
    for (const auto& watched : links_) {
      if (watched != nullptr) {
        watched->unwatch();
      }
    }
  }

  Rank rank() const override { return rank_; }
  int size() const override { return static_cast<int>(links_.size()); }

  Outcome wait(Transfer& transfer, Clock::time_point deadline) override {
    check(transfer.state != Transfer::State::idle, "only what was posted can be waited for");
    Clock::time_point spin_until = {};
    while (!finished(transfer)) {
      const bool moved = move_bytes(link(transfer.peer));
      if (finished(transfer)) {
        break;
      }
      const bool others_moved = move_other_bytes(transfer.peer);
      const Clock::time_point now = Clock::now();
      if (now >= deadline) {
        link(transfer.peer).link.cancel(transfer);
        transfer.state = Transfer::State::idle;
        return {Outcome::Kind::timed_out, transfer.peer, "did not answer in time"};
      }
      if (moved || others_moved || spin_until == Clock::time_point{}) {
        spin_until = now + kSpin;
      } else if (now < spin_until) {
        ::sched_yield();
      } else {
        sleep_until(deadline);
        spin_until = {};
      }
    }
    transfer.state = Transfer::State::idle;
    return std::move(transfer.outcome);
  }

  bool progress(Transfer& transfer) override {
    if (!finished(transfer)) {
      move_bytes(link(transfer.peer));
    }
    return finished(transfer);
  }
  std::uint64_t moves() const override { return moves_; }

  void cancel(Transfer& transfer) override {
    take_losses();
    if (transfer.state == Transfer::State::posted) {
      link(transfer.peer).link.cancel(transfer);
    }
    transfer.state = Transfer::State::idle;
  }

  void lose(Rank peer, const std::string& reason) override {
    {
      const std::scoped_lock lock(mutex_);
      losses_.emplace_back(peer, reason);
      has_losses_.store(true, std::memory_order_release);
    }
    asio::post(io_, [] {});  // wakes wait()
  }

 protected:
  void post(Transfer& transfer) override {
    take_losses();
    WatchedLink& watched = link(transfer.peer);
    watched.link.post(transfer);
    watched.unwatch_if_lost();
  }

 private:
  /// A link, and the loop that is told when its socket can be read or written.
  struct WatchedLink {
    WatchedLink(asio::io_context& io, Rank peer, std::unique_ptr<Stream> stream, bool checksums, std::size_t most_early)
        : descriptor(io, stream->fd()), link(peer, std::move(stream), checksums, most_early) {}

    void unwatch() {
      if (descriptor.is_open()) {
        descriptor.release();
      }
    }
    void unwatch_if_lost() {
      if (link.lost() && descriptor.is_open()) {
        descriptor.release();
        link.close();
      }
    }

    asio::posix::stream_descriptor descriptor;  // borrows the link's
    SocketLink link;
    bool watches_read = false;
    bool watches_write = false;
  };

  WatchedLink& link(Rank peer) { return *links_[static_cast<std::size_t>(peer.value)]; }

  bool finished(const Transfer& transfer) {
    take_losses();
    return transfer.state == Transfer::State::finished;
  }

  bool move_bytes(WatchedLink& watched) {
    const bool moved = !watched.link.lost() && watched.link.move_bytes();
    watched.unwatch_if_lost();
    moves_ += moved ? 1 : 0;
    return moved;
  }

  /// Those that have something to do. The others are looked at when the loop says so, before sleeping.
  bool move_other_bytes(Rank peer) {
    bool moved = false;
    for (std::size_t i = 0; i < links_.size(); ++i) {
      if (links_[i] != nullptr && static_cast<int>(i) != peer.value && links_[i]->link.busy()) {
        moved |= move_bytes(*links_[i]);
      }
    }
    return moved;
  }

  void sleep_until(Clock::time_point deadline) {
    for (const auto& watched : links_) {
      if (watched != nullptr && watched->descriptor.is_open()) {
        watch(*watched);
      }
    }
    if (io_.run_one_until(deadline) > 0) {
      io_.poll();
    }
  }

  void watch(WatchedLink& watched) {
    using Descriptor = asio::posix::stream_descriptor;
    if (watched.link.wants_read() && !watched.watches_read) {
      watched.watches_read = true;
      watched.descriptor.async_wait(Descriptor::wait_read, [this, &watched](const std::error_code& error) {
        watched.watches_read = false;
        if (!error) {
          move_bytes(watched);
        }
      });
    }
    if (watched.link.wants_write() && !watched.watches_write) {
      watched.watches_write = true;
      watched.descriptor.async_wait(Descriptor::wait_write, [this, &watched](const std::error_code& error) {
        watched.watches_write = false;
        if (!error) {
          move_bytes(watched);
        }
      });
    }
  }

  void take_losses() {
    if (!has_losses_.load(std::memory_order_acquire)) {
      return;
    }
    const std::scoped_lock lock(mutex_);
    for (const auto& [peer, reason] : losses_) {
      link(peer).link.lose(reason, true);
      link(peer).unwatch_if_lost();
    }
    losses_.clear();
    has_losses_ = false;
  }

  const Rank rank_;
  std::uint64_t moves_ = 0;
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::vector<std::unique_ptr<WatchedLink>> links_;  // by rank; none at our own

  std::mutex mutex_;
  std::vector<std::pair<Rank, std::string>> losses_;  // not yet told to their links; guarded by mutex_
  std::atomic<bool> has_losses_ = false;
};

}  // namespace

SocketFabricResult connect_socket_fabric(Rank rank, std::span<const Address> addresses, SocketListener& listener,
                                         const SocketFabricOptions& options, Clock::time_point deadline) {
  ConnectedStreams connected = connect_streams(rank, addresses, listener, options, deadline);
  if (connected.streams.empty()) {
    return {nullptr, connected.culprit, std::move(connected.reason)};
  }
  return {std::make_unique<SocketFabric>(rank, std::move(connected.streams), addresses, options)};
}

}  // namespace distbelief
