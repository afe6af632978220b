#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "server/server_client.h"
#include "server/touched_runs.h"
#include "strategy/strategy.h"

namespace distbelief {

/// What a worker of asynchronous SGD exchanges with parameter servers, however it computes: values come every
/// `fetch_every` batches, gradients of a unit's batches are added up and pushed, what is in every block is reported,
/// and what servers refuse goes back. One thread.
///
/// A worker asks for values by refresh(), says by computing() that it uses them, gives gradients to add(), and ends a
/// unit by push(). When there is no batch it calls finish().
class UnitExchange {
 public:
  struct Options {
    int fetch_every = 1;  ///< batches
    bool prefetch = false;
    bool whole_steps = false;
    Clock::duration patience = std::chrono::minutes(10);  ///< for servers that live but do not answer
    /// Of a copy of the network that several workers hold, who all do the same: what servers answered to a push of this
    /// one's part becomes what they answered to all: the worst status, and whole only if it was so for all of them.
    std::function<void(ServerClient::PushReport&)> agree = {};
    /// Likewise: called with values that have come.
    std::function<void(std::span<float> values)> fetched = {};
  };
  /// Nothing when training goes on. Of what was refused: a step without updates, and what was added is forgotten.
  using Ending = std::optional<StepReport>;

  /// `client` is borrowed.
  UnitExchange(ServerClient& client, const Options& options);

  int fetch_every() const { return options_.fetch_every; }
  /// From the next batch on.
  void set_exchange(int fetch_every, bool prefetch);
  /// What this worker has waited for servers.
  double wait_seconds() const { return wait_seconds_; }
  /// What orders have made of all rates.
  float rate_factor() const { return client_.rate_factor(); }

  /// Whether the values that are here have served their time, so that refresh() replaces them.
  bool values_due() const { return since_fetch_ >= options_.fetch_every || held_ != Held::all; }
  /// Values for the next batch, if they are due. `came` says whether they were replaced.
  /// With `touched`, which then comes with every batch, `fetch_every` 1 and no `prefetch` only what that names is
  /// fetched; the first values are all that there are, as frozen ones do not come again.
  [[nodiscard]] Ending refresh(BatchStream& batches, std::span<float> values, bool& came,
                               const TouchedRuns* touched = nullptr);
  /// So many batches are computed now, with these values; with `prefetch` those for the batches after them may be asked
  /// for meanwhile.
  void computing(int batches);
  /// The gradient of so many batches, with these sums, to that of the unit: see ServerClient::add().
  void add(std::span<const std::span<const float>> parts, float factor, const LossSums& sums, int batches);
  /// The same of one batch whose gradient is 0 but for what it touches.
  void add(const TouchedRuns& touched, std::span<const float> gradient, float factor, const LossSums& sums);
  /// Of the unit that was added up; the one before is acknowledged first.
  [[nodiscard]] Ending push(BatchStream& batches, const PushUnit& unit);

  /// There is no batch now. All pushes are acknowledged and reported, and others need not wait for this worker:
  /// end_of_epoch.
  [[nodiscard]] StepReport finish(BatchStream& batches);
  /// All pushes are acknowledged and reported.
  [[nodiscard]] StepReport settle(BatchStream& batches);
  /// There is no batch, and nothing on its way: others need not wait for this worker. As a step that found none.
  [[nodiscard]] StepReport rest();
  /// Says to whoever keeps the books why this worker cannot go on, and which unit, if any, is dropped for it.
  void tell_trouble(BatchStream& batches, const std::string& words, const std::optional<PushUnit>& dropped);

 private:
  /// A push that is not acknowledged yet.
  struct Flight {
    PushUnit unit;
    LossSums sums;
    std::optional<PushUnit> reports;  ///< the unit before, which its head tells of
  };
  /// A unit that is in every block, which nobody knows yet.
  struct Acknowledged {
    PushUnit unit;
    UnitReport report;
  };
  bool fetches_touched() const {
    return touched_ && options_.fetch_every == 1 && !options_.prefetch && held_ != Held::nothing;
  }
  void begin_fetch(const TouchedRuns* touched);
  /// The next batch is computed with values that are asked for from now on.
  void want_new_values();
  Ending wait_for_flight(BatchStream& batches);
  Ending give_back(BatchStream& batches, const PushUnit& unit);
  Clock::time_point deadline() const { return Clock::now() + options_.patience; }

  ServerClient& client_;
  Options options_;
  int since_fetch_;                                                             ///< batches computed since values came
  enum class Held : std::uint8_t { nothing, some, all } held_ = Held::nothing;  ///< of the values
  bool touched_ = false;                                                        ///< batches say what they touch
  bool fetch_is_old_ = false;  ///< the one on its way was asked for before values became due anew
  bool values_come_ = false;   ///< with the push that is on its way
  bool values_came_ = false;   ///< with the push that was waited for last
  bool whole_ = false;         ///< every block took the last push, and no values came since
  bool idle_ = false;          ///< servers know that there is nothing to push
  int batches_ = 0;            ///< these two: of the unit that is being added up
  LossSums sums_;
  std::optional<Flight> flight_;
  std::optional<Acknowledged> acknowledged_;
  double wait_seconds_ = 0;
};

/// A strategy of a worker whose parameters are with servers: all that counts is there.
class ServedStrategy : public Strategy {
 public:
  ServedStrategy(ServerClient& client, const UnitExchange::Options& options) : exchange_(client, options) {}
  /// Nothing: values are fetched when there is a batch to compute with them.
  [[nodiscard]] StepReport join() override { return {}; }
  /// All pushes are acknowledged and reported.
  [[nodiscard]] StepReport settle(BatchStream& batches) override { return exchange_.settle(batches); }
  bool holds_state() const override { return false; }
  void visit_state(StateVisitor& /*visitor*/) override {}

  UnitExchange& exchange() { return exchange_; }

 private:
  UnitExchange exchange_;
};

}  // namespace distbelief
