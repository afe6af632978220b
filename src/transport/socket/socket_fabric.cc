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
#include <thread>
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
  /// Without links: for add_link().
  explicit SocketFabric(Rank rank) : rank_(rank), work_(asio::make_work_guard(io_)) {}
  SocketFabric(Rank rank, std::vector<std::unique_ptr<Stream>> streams, std::span<const Address> addresses,
               const SocketFabricOptions& options)
      : rank_(rank), work_(asio::make_work_guard(io_)) {
    for (std::size_t i = 0; i < streams.size(); ++i) {
      const Rank peer{static_cast<int>(i)};
      if (streams[i] == nullptr) {  // its own, or given up
        links_.push_back(nullptr);
        continue;
      }
      // Who dialled whom decides whose kind of address the connection has.
      const Address& address = addresses[std::min(i, static_cast<std::size_t>(rank.value))];
      // Encrypted bytes are checked by TLS, and those between processes of one host by nobody.
      const bool checksums = address.kind == Address::Kind::tcp && !options.tls;
      links_.push_back(std::make_unique<WatchedLink>(io_, peer, std::move(streams[i]), checksums, options.most_early,
                                                     early_memory_));
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

  bool has_link(Rank peer) const {
    const auto index = static_cast<std::size_t>(peer.value);
    return index < links_.size() && links_[index] != nullptr;
  }
  void add_link(Rank peer, std::unique_ptr<Stream> stream, bool checksums, std::size_t most_early) {
    links_.resize(std::max(links_.size(), static_cast<std::size_t>(peer.value) + 1));
    links_[static_cast<std::size_t>(peer.value)] =
        std::make_unique<WatchedLink>(io_, peer, std::move(stream), checksums, most_early, early_memory_);
  }

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
    take_news();
    if (transfer.state == Transfer::State::posted) {
      link(transfer.peer).link.cancel(transfer);
    }
    transfer.state = Transfer::State::idle;
  }

  void lose(Rank peer, const std::string& reason) override {
    {
      const std::scoped_lock lock(mutex_);
      losses_.emplace_back(peer, reason);
      has_news_.store(true, std::memory_order_release);
    }
    asio::post(io_, [] {});  // wakes wait()
  }

  void end_epoch(std::uint32_t epoch, const std::string& reason) override {
    {
      const std::scoped_lock lock(mutex_);
      endings_.emplace_back(epoch, reason);
      has_news_.store(true, std::memory_order_release);
    }
    asio::post(io_, [] {});  // wakes wait()
  }

 protected:
  void post(Transfer& transfer) override {
    take_news();
    if (!has_link(transfer.peer)) {
      transfer.outcome = {Outcome::Kind::peer_lost, transfer.peer, "has no link to this process"};
      transfer.state = Transfer::State::finished;
      return;
    }
    WatchedLink& watched = link(transfer.peer);
    watched.link.post(transfer);
    watched.unwatch_if_lost();
  }

 private:
  /// A link, and the loop that is told when its socket can be read or written.
  struct WatchedLink {
    WatchedLink(asio::io_context& io, Rank peer, std::unique_ptr<Stream> stream, bool checksums, std::size_t most_early,
                EarlyMemory& memory)
        : descriptor(io, stream->fd()), link(peer, std::move(stream), checksums, most_early, memory) {}

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
    take_news();
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

  void take_news() {
    if (!has_news_.load(std::memory_order_acquire)) {
      return;
    }
    const std::scoped_lock lock(mutex_);
    for (const auto& [peer, reason] : losses_) {
      if (has_link(peer)) {
        link(peer).link.lose(reason, true);
        link(peer).unwatch_if_lost();
      }
    }
    for (const auto& [epoch, reason] : endings_) {
      for (const auto& watched : links_) {
        if (watched != nullptr) {
          watched->link.end_epoch(epoch, reason);
        }
      }
    }
    losses_.clear();
    endings_.clear();
    has_news_ = false;
  }

  const Rank rank_;
  std::uint64_t moves_ = 0;
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  EarlyMemory early_memory_;
  std::vector<std::unique_ptr<WatchedLink>> links_;  // by rank; none at our own

  std::mutex mutex_;
  std::vector<std::pair<Rank, std::string>> losses_;  // these two: not yet told to links; guarded by mutex_
  std::vector<std::pair<std::uint32_t, std::string>> endings_;
  std::atomic<bool> has_news_ = false;
};

/// Who waits looks at two kinds of links: at first it gives its core away between looks, then it sleeps.
constexpr std::chrono::microseconds kYieldBetweenLooks(50);
constexpr std::chrono::microseconds kNapBetweenLooks(50);

class LateLinks : public GrowingFabric {
 public:
  LateLinks(Rank rank, std::unique_ptr<Fabric> first, std::unique_ptr<SocketListener> listener,
            const SocketFabricOptions& options)
      : rank_(rank),
        first_(std::move(first)),
        firsts_(first_ == nullptr ? 0 : first_->size()),
        listener_(std::move(listener)),
        options_(options),
        late_(rank),
        size_(std::max(firsts_, rank.value + 1)) {}

  Rank rank() const override { return rank_; }
  int size() const override { return size_; }

  Outcome wait(Transfer& transfer, Clock::time_point deadline) override {
    Fabric& own = fabric_of(transfer.peer);
    if (has_late_ && first_ != nullptr) {
      look_until_finished(transfer, deadline);
    }
    std::erase(open_, &transfer);
    return own.wait(transfer, deadline);
  }
  bool progress(Transfer& transfer) override {
    const bool finished = fabric_of(transfer.peer).progress(transfer);
    // Who looks at one again and again waits for it; who looks at all in turn need not move them all each time.
    const bool again = std::exchange(looked_at_, &transfer) == &transfer;
    if (!finished && (again || ++looks_ > open_.size())) {
      looks_ = 0;
      move_what_is_open();
    }
    return finished;
  }
  std::uint64_t moves() const override { return late_.moves() + (first_ == nullptr ? 0 : first_->moves()); }
  void cancel(Transfer& transfer) override {
    std::erase(open_, &transfer);
    fabric_of(transfer.peer).cancel(transfer);
  }
  void lose(Rank peer, const std::string& reason) override { fabric_of(peer).lose(peer, reason); }
  void end_epoch(std::uint32_t epoch, const std::string& reason) override {
    if (first_ != nullptr) {
      first_->end_epoch(epoch, reason);
    }
    late_.end_epoch(epoch, reason);
  }

  Grown grow(const std::map<int, Address>& peers, std::uint32_t view, const std::function<bool(Rank)>& given_up,
             Clock::time_point deadline) override {
    std::map<int, Address> missing;
    for (const auto& [rank, address] : peers) {
      if (rank != rank_.value && rank >= firsts_ && !late_.has_link(Rank{rank})) {
        missing.emplace(rank, address);
      }
    }
    return missing.empty() ? Grown{} : adopt(meet(missing, view, given_up, deadline));
  }

  std::unique_ptr<Met> meet(const std::map<int, Address>& peers, std::uint32_t view,
                            const std::function<bool(Rank)>& given_up, Clock::time_point deadline) override {
    SocketFabricOptions options = options_;
    options.view = view;
    auto met = std::make_unique<MetStreams>();
    met->peers = peers;
    met->streams = connect_late_streams(rank_, peers, *listener_, options, given_up, deadline);
    return met;
  }

  Grown adopt(std::unique_ptr<Met> given) override {
    auto& [peers, met] = dynamic_cast<MetStreams&>(*given);
    if (met.culprit.value >= 0) {
      return {.ok = false, .culprit = met.culprit, .reason = std::move(met.reason)};
    }
    for (auto& [rank, stream] : met.streams) {
      const Address& address = rank < rank_.value ? peers.at(rank) : listener_->address();  // as of who was dialled
      late_.add_link(Rank{rank}, std::move(stream), address.kind == Address::Kind::tcp && !options_.tls,
                     options_.most_early);
      size_ = std::max<int>(size_, rank + 1);
      has_late_ = true;
    }
    return {.view = met.view};
  }

 protected:
  void post(Transfer& transfer) override {
    if (has_late_ && first_ != nullptr) {
      open_.push_back(&transfer);
    }
    post_to(fabric_of(transfer.peer), transfer);
  }

 private:
  struct MetStreams : Met {
    std::map<int, Address> peers;
    LateStreams streams;
  };

  Fabric& fabric_of(Rank peer) { return peer.value < firsts_ ? *first_ : late_; }

  /// Somebody may wait for what is open on the other kind of links.
  void move_what_is_open() {
    for (Transfer* open : open_) {
      (void)fabric_of(open->peer).progress(*open);
    }
  }

  void look_until_finished(Transfer& transfer, Clock::time_point deadline) {
    const Clock::time_point began = Clock::now();
    for (;;) {
      if (progress(transfer)) {
        return;
      }
      const Clock::time_point now = Clock::now();
      if (now >= deadline) {
        return;
      }
      if (now < began + kYieldBetweenLooks) {
        ::sched_yield();
      } else {
        std::this_thread::sleep_until(std::min(now + kNapBetweenLooks, deadline));
      }
    }
  }

  const Rank rank_;
  const std::unique_ptr<Fabric> first_;
  const int firsts_;
  const std::unique_ptr<SocketListener> listener_;
  const SocketFabricOptions options_;
  SocketFabric late_;
  bool has_late_ = false;
  std::atomic<int> size_;        // asked by who tells of losses
  std::vector<Transfer*> open_;  // when there are both kinds
  const Transfer* looked_at_ = nullptr;
  std::size_t looks_ = 0;  // since what is open was moved
};

}  // namespace

std::unique_ptr<GrowingFabric> make_growing_fabric(Rank rank, std::unique_ptr<Fabric> first,
                                                   std::unique_ptr<SocketListener> listener,
                                                   const SocketFabricOptions& options) {
  return std::make_unique<LateLinks>(rank, std::move(first), std::move(listener), options);
}

SocketFabricResult connect_socket_fabric(Rank rank, std::span<const Address> addresses, SocketListener& listener,
                                         const SocketFabricOptions& options, Clock::time_point deadline,
                                         const std::function<bool(Rank)>& given_up) {
  ConnectedStreams connected = connect_streams(rank, addresses, listener, options, given_up, deadline);
  if (connected.culprit.value >= 0) {
    return {nullptr, connected.culprit, std::move(connected.reason)};
  }
  return {std::make_unique<SocketFabric>(rank, std::move(connected.streams), addresses, options)};
}

}  // namespace distbelief
