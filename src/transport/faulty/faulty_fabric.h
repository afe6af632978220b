#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "transport/ended_epochs.h"
#include "transport/fabric.h"

namespace distbelief {

/// Something that goes wrong with a rank's links, from its own side. A fault of the link between two ranks is told to
/// both, a fault of one rank's network to that rank, for all its peers.
struct Fault {
  enum class Kind : std::uint8_t {
    delay,  ///< messages that are sent arrive later by `delay`, and by up to `jitter` more, at random
    slow,   ///< the link carries `bytes_per_second`, one message after the other
    drop,   ///< messages that are sent are lost, each with `probability`; the sender does not notice
    cut,    ///< nothing goes out or comes in until the end; then what waited goes on, or the peer is lost
  };
  Kind kind = Kind::delay;
  std::optional<Rank> peer = {};  ///< none: all peers
  Clock::time_point from = Clock::time_point::min();
  Clock::time_point until = Clock::time_point::max();
  std::chrono::microseconds delay = {};
  std::chrono::microseconds jitter = {};
  double bytes_per_second = 0;
  double probability = 1;
  bool then_lost = false;  ///< of a cut: at its end the peer is lost ("was cut off"). A cut without end loses nobody:
                           ///< as with a real one, whoever waits learns nothing but that its deadline passed.
};

/// Any fabric, with faults. Without any it is as fast as the one it stands around, but for an allocation a transfer;
/// with some, wait() looks every tenth of a millisecond. What is on its way when a fault begins is not stopped, unless
/// it is a cut; a wait() that began when there was no fault at all does not notice one that is injected meanwhile.
/// One thread, except lose(), end_epoch(), inject(), lift() and lift_all(), which are thread-safe.
class FaultyFabric : public Fabric {
 public:
  /// `seed`: of jitter and drops; the same faults then meet the same messages of a link, counted in the order of posts.
  FaultyFabric(std::unique_ptr<Fabric> fabric, std::uint64_t seed);
  ~FaultyFabric() override;

  struct FaultId {
    std::uint64_t value = 0;
  };
  FaultId inject(const Fault& fault);
  /// Nothing happens when it was lifted before.
  void lift(FaultId id);
  void lift_all();

  Rank rank() const override { return fabric_->rank(); }
  int size() const override { return fabric_->size(); }
  Outcome wait(Transfer& transfer, Clock::time_point deadline) override;
  bool progress(Transfer& transfer) override;
  std::uint64_t moves() const override { return fabric_->moves(); }
  void cancel(Transfer& transfer) override;
  void lose(Rank peer, const std::string& reason) override;
  void end_epoch(std::uint32_t epoch, const std::string& reason) override;

 protected:
  void post(Transfer& transfer) override;

 private:
  /// What the caller posted, and what was posted for it.
  struct Open {
    Transfer inner;
    bool released = false;              // posted to the fabric, whose own the inner transfer then is
    Clock::time_point not_before = {};  // when it may go out
    bool dropped = false;
  };

  bool affects(const Fault& fault, Rank peer, Clock::time_point now) const;
  bool has_faults();
  bool is_cut(Rank peer, Clock::time_point now);
  void plan_send(const Transfer& transfer, Open& open, Clock::time_point now);
  void release(Transfer& transfer, Open& open);
  void release_all();
  void end_cuts(Clock::time_point now);
  bool finished(Transfer& transfer, Open& open);
  Outcome conclude(Transfer& transfer);

  const std::unique_ptr<Fabric> fabric_;
  const CounterRandom random_;
  std::unordered_map<Transfer*, std::unique_ptr<Open>> open_;
  std::map<int, std::uint64_t> sends_;              // of each peer: how many were posted
  std::map<int, Clock::time_point> carried_until_;  // of each peer: when a slow link is free again
  EndedEpochs ended_;

  std::mutex mutex_;
  std::map<std::uint64_t, Fault> faults_;  // guarded by mutex_
  std::set<int> lost_;                     // by lose(); guarded by mutex_
  std::uint64_t next_id_ = 1;              // guarded by mutex_
};

}  // namespace distbelief
