#include "transport/local/local_fabric.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>

#include "base/check.h"

namespace distbelief {
namespace {

/// What the ranks share. A transfer that is posted and not finished is in open_, where its counterpart finds it.
class Hub {
 public:
  explicit Hub(int ranks) : size_(ranks), places_(static_cast<std::size_t>(ranks)) {
    for (Place& place : places_) {
      place.lost.resize(static_cast<std::size_t>(ranks));
    }
  }

  int size() const { return size_; }

  void post(Rank self, Transfer& transfer) {
    std::unique_lock lock(mutex_);
    if (const std::string* reason = lost_reason(self, transfer.peer)) {
      finish(transfer, {Outcome::Kind::peer_lost, transfer.peer, *reason});
      return;
    }
    if (const auto ended = place(self).ended.find(transfer.tag.epoch); ended != place(self).ended.end()) {
      finish(transfer, {Outcome::Kind::interrupted, transfer.peer, ended->second});
      return;
    }
    std::vector<Transfer*>& theirs = place(transfer.peer).open;
    const auto match = std::ranges::find_if(theirs, [&](const Transfer* other) {
      return other->peer == self && other->sends != transfer.sends && other->tag == transfer.tag;
    });
    if (match == theirs.end()) {
      place(self).open.push_back(&transfer);
      return;
    }
    Transfer& other = **match;
    theirs.erase(match);
    if (other.bytes != transfer.bytes) {
      finish(transfer, {Outcome::Kind::mismatch, transfer.peer, "sends or expects a message of another length"});
      finish(other, {Outcome::Kind::mismatch, self, "sends or expects a message of another length"});
      place(transfer.peer).changed.notify_all();
      return;
    }
    // Out of open_, nobody but us ends these two: wait() and cancel() of the other side wait for the copy.
    lock.unlock();
    const Transfer& from = transfer.sends ? transfer : other;
    const Transfer& to = transfer.sends ? other : transfer;
    if (from.bytes > 0) {
      std::memcpy(to.data, from.data, from.bytes);
    }
    lock.lock();
    finish(transfer, {});
    finish(other, {});
    place(transfer.peer).changed.notify_all();
  }

  Outcome wait(Rank self, Transfer& transfer, Clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    check(transfer.state != Transfer::State::idle, "only what was posted can be waited for");
    const auto finished = [&] { return transfer.state == Transfer::State::finished; };
    if (!place(self).changed.wait_until(lock, deadline, finished) && !give_up(lock, self, transfer)) {
      transfer.state = Transfer::State::idle;
      return {Outcome::Kind::timed_out, transfer.peer, "did not answer in time"};
    }
    transfer.state = Transfer::State::idle;
    return transfer.outcome;
  }

  bool finished(const Transfer& transfer) {
    const std::scoped_lock lock(mutex_);
    return transfer.state == Transfer::State::finished;
  }

  void cancel(Rank self, Transfer& transfer) {
    std::unique_lock lock(mutex_);
    if (transfer.state == Transfer::State::posted) {
      (void)give_up(lock, self, transfer);
    }
    transfer.state = Transfer::State::idle;
  }

  void lose(Rank self, Rank peer, const std::string& reason) {
    const std::scoped_lock lock(mutex_);
    lose_locked(self, peer, reason);
  }

  void end_epoch(Rank self, std::uint32_t epoch, const std::string& reason) {
    const std::scoped_lock lock(mutex_);
    if (!place(self).ended.emplace(epoch, reason).second) {
      return;
    }
    std::erase_if(place(self).open, [&](Transfer* transfer) {
      if (transfer->tag.epoch != epoch) {
        return false;
      }
      finish(*transfer, {Outcome::Kind::interrupted, transfer->peer, reason});
      return true;
    });
    place(self).changed.notify_all();
  }

  void leave(Rank self) {
    const std::scoped_lock lock(mutex_);
    place(self).open.clear();
    for (int other = 0; other < size_; ++other) {
      if (other != self.value) {
        lose_locked(Rank{other}, self, "left");
      }
    }
  }

 private:
  struct Place {
    std::vector<Transfer*> open;
    std::vector<std::optional<std::string>> lost;
    std::map<std::uint32_t, std::string> ended;  // epochs, with the reason
    std::condition_variable changed;
  };

  Place& place(Rank rank) { return places_[static_cast<std::size_t>(rank.value)]; }

  const std::string* lost_reason(Rank self, Rank peer) {
    const auto& lost = place(self).lost[static_cast<std::size_t>(peer.value)];
    return lost ? &*lost : nullptr;
  }

  static void finish(Transfer& transfer, Outcome outcome) {
    transfer.outcome = std::move(outcome);
    transfer.state = Transfer::State::finished;
  }

  /// False: the transfer was open and is so no more. True: its counterpart had come, and it is finished now.
  bool give_up(std::unique_lock<std::mutex>& lock, Rank self, Transfer& transfer) {
    if (std::erase(place(self).open, &transfer) > 0) {
      return false;
    }
    place(self).changed.wait(lock, [&] { return transfer.state == Transfer::State::finished; });  // a memcpy long
    return true;
  }

  void lose_locked(Rank self, Rank peer, const std::string& reason) {
    auto& lost = place(self).lost[static_cast<std::size_t>(peer.value)];
    if (lost) {
      return;
    }
    lost = reason;
    std::erase_if(place(self).open, [&](Transfer* transfer) {
      if (transfer->peer != peer) {
        return false;
      }
      finish(*transfer, {Outcome::Kind::peer_lost, peer, reason});
      return true;
    });
    place(self).changed.notify_all();
  }

  const int size_;
  std::mutex mutex_;  // guards all below, and state and outcome of posted transfers
  std::vector<Place> places_;
};

class LocalFabric : public Fabric {
 public:
  LocalFabric(std::shared_ptr<Hub> hub, Rank rank) : hub_(std::move(hub)), rank_(rank) {}
  ~LocalFabric() override { hub_->leave(rank_); }
  Rank rank() const override { return rank_; }
  int size() const override { return hub_->size(); }
  Outcome wait(Transfer& transfer, Clock::time_point deadline) override {
    return hub_->wait(rank_, transfer, deadline);
  }
  bool progress(Transfer& transfer) override { return hub_->finished(transfer); }
  void cancel(Transfer& transfer) override { hub_->cancel(rank_, transfer); }
  void lose(Rank peer, const std::string& reason) override { hub_->lose(rank_, peer, reason); }
  void end_epoch(std::uint32_t epoch, const std::string& reason) override { hub_->end_epoch(rank_, epoch, reason); }

 protected:
  void post(Transfer& transfer) override { hub_->post(rank_, transfer); }

 private:
  const std::shared_ptr<Hub> hub_;  // shared by the ranks; goes with the last of them
  const Rank rank_;
};

}  // namespace

std::vector<std::unique_ptr<Fabric>> make_local_fabrics(int ranks) {
  check(ranks >= 1, "a job has at least one rank");
  const auto hub = std::make_shared<Hub>(ranks);
  std::vector<std::unique_ptr<Fabric>> fabrics;
  for (int rank = 0; rank < ranks; ++rank) {
    fabrics.push_back(std::make_unique<LocalFabric>(hub, Rank{rank}));
  }
  return fabrics;
}

}  // namespace distbelief
