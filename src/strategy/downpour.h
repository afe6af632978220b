#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "params/parameter_shard.h"
#include "server/server_client.h"
#include "server/touched_runs.h"
#include "strategy/strategy.h"

namespace distbelief {

/// A worker of asynchronous SGD through parameter servers (Downpour, Dean et al. 2012). It fetches parameters every
/// `fetch_every` batches, computes gradients, and pushes the sum of each unit's: servers apply them as they come, from
/// whomever. Between fetches it also applies its gradients to its own copy, which is a cache: nothing of it counts.
///
/// Without `prefetch` the values that a step starts from contain all that this worker has pushed, so that one worker
/// that fetches and pushes each time is plain SGD, bit for bit. With it they are asked for one step earlier, and come
/// while that step computes.
///
/// With `whole_steps` it is synchronous SGD through servers that gather: a worker whose push every block took waits
/// until all blocks have made their updates. With one server, what it fetches after that is what all others fetch; of
/// several servers each has its own first gradients of a step.
///
/// Servers may refuse a push because its gradient is of values that are too old by then. The step then computes
/// nothing: what was computed is dropped, the samples go back, and values are fetched anew.
///
/// A replica of touched rows (GradientRows::touched) pushes only what its batches touch, and, with `fetch_every` 1 and
/// no `prefetch`, fetches only what the next batch does. Its values are then right there alone. One worker is still
/// plain SGD bit for bit, but for a gradient shortened by clip_norm, whose length is added up in another order.
///
/// A step ends with end_of_epoch when there was no batch: all pushes are then acknowledged and reported.
class Downpour : public Strategy {
 public:
  struct Options {
    int fetch_every = 1;  ///< batches
    bool prefetch = false;
    bool whole_steps = false;
    Clock::duration patience = std::chrono::minutes(10);  ///< for servers that live but do not answer
  };
  /// All but `options` are borrowed. `rule` is what the servers use, for the worker's own steps between fetches.
  Downpour(Replica& replica, const UpdateRule& rule, ServerClient& client, const Options& options);
  /// Nothing: values are fetched when there is a batch to compute with them.
  [[nodiscard]] StepReport join() override { return {}; }
  [[nodiscard]] StepReport step(BatchStream& batches, const StepRequest& request) override;
  /// All pushes are acknowledged and reported.
  [[nodiscard]] StepReport settle(BatchStream& batches) override;
  /// All that counts is with the servers.
  bool holds_state() const override { return false; }
  void visit_state(StateVisitor& /*visitor*/) override {}

  /// There is no batch, and nothing on its way: others need not wait for this worker. As a step that found none.
  [[nodiscard]] StepReport rest();
  /// From the next batch on.
  void set_exchange(int fetch_every, bool prefetch);
  /// What this worker has waited for servers.
  double wait_seconds() const { return wait_seconds_; }
  /// Says to whoever keeps the books why this worker cannot go on.
  void tell_trouble(BatchStream& batches, const std::string& words);

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
  /// Nothing when training goes on.
  using Ending = std::optional<StepReport>;

  /// Whether nothing is fetched but what a batch touches. The first values are all that there are: frozen ones do not
  /// come again.
  bool fetches_touched() const {
    return touched_ && options_.fetch_every == 1 && !options_.prefetch && held_ != Held::nothing;
  }
  void begin_fetch();
  /// Values for the next batch, if those that are here have served their time.
  Ending refresh(BatchStream& batches);
  Ending push(BatchStream& batches, const PushUnit& unit);
  /// What the gradient of a batch is multiplied with, so that it is not longer than allowed.
  float clipping(const LossSums& sums, float clip_norm) const;
  LossSums compute(const Batch& batch);
  void add(float factor);
  Ending wait_for_flight(BatchStream& batches);
  Ending give_back(BatchStream& batches, const PushUnit& unit);
  /// Also to the worker's own copy.
  void step_locally(const PushUnit& unit, const LossSums& sums, const UpdateOptions& update);
  Clock::time_point deadline() const { return Clock::now() + options_.patience; }

  Replica& replica_;
  const UpdateRule& rule_;
  ServerClient& client_;
  Options options_;
  int since_fetch_;           ///< batches computed since values came
  bool values_come_ = false;  ///< with the push that is on its way
  bool values_came_ = false;  ///< with the push that was waited for last
  bool whole_ = false;        ///< every block took the last push, and no values came since
  bool idle_ = false;         ///< servers know that there is nothing to push
  int batches_ = 0;           ///< these two: of the unit that is being added up
  LossSums sums_;
  enum class Held : std::uint8_t { nothing, some, all } held_ = Held::nothing;  ///< of the values
  std::optional<TouchedRuns> touched_;  ///< by the batch of this step, if the replica is one of touched rows
  std::optional<Flight> flight_;
  std::optional<Acknowledged> acknowledged_;

  double wait_seconds_ = 0;
  std::optional<ParameterShard> own_;  ///< these four: for own steps between fetches
  std::uint64_t own_steps_ = 0;
  std::vector<float> own_floats_;  ///< of a gradient of touched runs
  std::vector<float> unpushed_;    ///< what the own steps have changed of batches that are in no push yet; or empty
};

}  // namespace distbelief
