#pragma once

#include <vector>

#include "strategy/step_exchange.h"
#include "tensor/buffer.h"

namespace distbelief {

/// Data slicing: every member trains on its slice of each epoch as if it were alone, and now and then parameters and
/// optimizer state become the mean of all members' (Zinkevich et al. 2010; McDonald et al. 2010; "local SGD").
///
/// With an outer rule the mean is not taken as it is: the way from the last common point, the centre, to the mean is
/// the gradient of another update rule, which moves the centre (momentum there is "block momentum", Chen and Huo 2016).
///
/// Members can also stay alone until the very end: the averages that settle() makes are then only shown, to evaluations
/// and checkpoints, and the next step goes on from the member's own parameters.
///
/// Samples count as applied when an average contains them. Between averages members meet every few steps to tell sums
/// and whether someone wants to stop or to leave; nothing large travels then. A member whose loss is not finite waits
/// for the next meeting, where all hear of it.
class PeriodicAveraging : public Strategy {
 public:
  struct Options {
    GroupOptions group;
    std::int64_t every = 0;             ///< steps between averages; 0: only when settle() is called
    bool only_for_show = false;         ///< training does not go on from settle()'s averages; not with an outer rule
    const UpdateRule* outer = nullptr;  ///< borrowed; null: the mean is taken as it is
    float outer_rate = 1;
  };
  /// All but `options` are borrowed.
  PeriodicAveraging(Replica& replica, const UpdateRule& rule, Group& group, const Options& options);
  [[nodiscard]] StepReport join() override;
  [[nodiscard]] StepReport step(BatchStream& batches, const StepRequest& request) override;
  [[nodiscard]] StepReport settle(BatchStream& batches) override;
  bool in_step() const override { return false; }
  /// After an average and before the next step; members differ otherwise.
  bool holds_state() const override { return steps_since_average_ == 0; }
  void visit_state(StateVisitor& visitor) override;

 private:
  static constexpr std::int64_t kMeetEvery = 16;

  /// Computes and applies one batch; notes what went wrong in culprit_.
  LossSums train_alone(const Batch& batch, const UpdateOptions& update);
  /// Tells and hears what happened since the last meeting.
  StepReport meet(BatchStream& batches, Wishes wishes, Clock::time_point deadline);
  /// meet(), and an average that contains all samples since the last.
  StepReport meet_and_average(BatchStream& batches, Wishes wishes, Clock::time_point deadline);
  Outcome average(Clock::time_point deadline);
  void take_back_own();
  void move_centre();

  Replica& replica_;
  Group& group_;
  const Options options_;
  ParameterShard shard_;
  StepExchange exchange_;
  Buffer centre_;                              ///< where all last were together; with an outer rule only
  std::optional<ParameterShard> outer_shard_;  ///< of the centre
  std::vector<Buffer> own_;                    ///< values and slots of this member while an average is shown
  bool is_aside_ = false;                      ///< an average is shown
  std::uint64_t averages_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t steps_since_average_ = 0;
  LossSums since_meeting_;
  std::vector<std::uint64_t> ids_since_meeting_;
  std::vector<std::uint64_t> waiting_;  ///< samples of all members that wait for an average
  std::string culprit_;                 ///< why this member does not train any more
};

}  // namespace distbelief
