#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/folder_lock.h"
#include "config/run_config.h"
#include "metrics/counters.h"
#include "metrics/progress.h"
#include "train/plan_knowledge.h"
#include "train/served_books.h"
#include "train/team.h"

namespace distbelief {

/// What is known at the end of an epoch.
struct EpochReport {
  std::int64_t epoch = 1;  ///< from 1
  double train_loss = 0;
  double train_accuracy = 0;
  std::optional<double> validation_loss, validation_accuracy;
  std::optional<double> test_loss, test_accuracy;
  double samples_per_second = 0;
  bool best = false;  ///< the best on validation so far
};

/// A member of a team was lost, came, or left when it was asked to.
struct TeamEvent {
  enum class What : std::uint8_t { lost, joined, left };
  What what = What::lost;
  std::string who;        ///< "worker 1 (pid 4711 on alpha)"
  std::string why;        ///< of a loss
  std::int64_t step = 0;  ///< after which the others went on
};
std::string_view name_of(TeamEvent::What what);

/// Samples of a step that a worker takes.
struct MemberShare {
  int worker = 0;
  std::int64_t rows = 0;
  friend bool operator==(const MemberShare&, const MemberShare&) = default;
};

/// What a run came to: the content of summary.json.
struct RunSummary {
  /// finished, stopped early, interrupted, diverged or lost; of a worker that left: left; of one that the others go on
  /// without: given up
  std::string status = {};
  std::string model = {}, data = {};
  std::int64_t parameters = 0;
  int workers = 1;         ///< with which it began
  int workers_at_end = 1;  ///< that are left, or have come
  std::vector<TeamEvent> events = {};
  int servers = 0;
  std::int64_t batch = 0;             ///< samples of a step, over all workers
  std::int64_t batch_per_worker = 0;  ///< the most of it, when shares are equal
  std::vector<MemberShare> shares = {};    ///< of the batch, at the end, where workers make each step together
  int restarts = 0;                   ///< of the whole job, after a death
  int threads = 0;                    ///< of each worker
  std::string thread_mode = {};
  std::int64_t steps = 0;
  std::int64_t epochs = 0;      ///< completed
  EpochReport last = {};             ///< of the last completed epoch
  std::int64_t model_step = 0;  ///< which step's values model.safetensors holds
  double train_seconds = 0;
  double samples_per_second = 0;
  double loader_wait_seconds = 0;
  SampleAudit samples = {};
  std::uint64_t sent_bytes = 0;              ///< by all processes to each other until the end of the last epoch
  std::uint64_t server_bytes_moved = 0;      ///< of parameters, copied from server to server since the run went on
  std::optional<StalenessCounts> staleness = {};  ///< of runs through parameter servers
  std::int64_t failed_checkpoints = 0;       ///< these three: what could not be written
  std::int64_t failed_copies = 0;            ///< of checkpoints
  std::int64_t lost_metrics = 0;             ///< rows
  double rate_factor = 1;                    ///< likewise: below 1 when the guard against divergence lowered rates
  std::string problem = {};  ///< diverged: at which step and in which layer; lost: which process and why
  std::filesystem::path folder = {};
  bool has_classes = true;
};

/// Hears what happens in a run, on the training thread.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  /// Once, before the first step: one line each about model, data and threads.
  virtual void started(const std::vector<std::string>& /*lines*/) {}
  virtual void stepped(const ProgressState& /*state*/) {}
  virtual void epoch_ended(const EpochReport& /*report*/) {}
  virtual void note(std::string_view /*text*/) {}
  /// The leader is lost, and this member leads from now on.
  virtual void takes_over() {}
  /// Another member leads from now on.
  virtual void follows() {}
  /// Of a leader whose team may outlive it: the results are written. When this returns, whoever shows the run knows.
  virtual void ended(const RunSummary& /*summary*/) {}
};

/// What a run needs besides its configuration, opened before it is known whether it is needed.
struct OpenedRun;

/// Trains as the configuration says and writes the run's folder. The one place that wires data, model, replica,
/// strategy, checkpoints and metrics together. In a team every member has one, with the same configuration; only the
/// leader's touches the folder. One thread.
class Trainer {
 public:
  /// A new run. Opens data and model and checks all of it; only then makes the folder. Throws InputError; then, and
  /// when run() does before there is a checkpoint, nothing is left behind.
  Trainer(RunConfig config, RunObserver& observer);
  /// Goes on with the run in `folder` from its newest sound checkpoint, bit for bit. `config` is what the folder's
  /// run.yaml says, with what the user changed. Throws InputError or FileError.
  static Trainer resume(const std::filesystem::path& folder, RunConfig config, RunObserver& observer);
  /// A member's part of a run of a team in a folder that prepare_run() made, or, when `resumes`, that holds a run.
  /// `opened`: what open() gave for the same configuration, which is taken; or nothing.
  static Trainer in_team(const Team& team, const std::filesystem::path& folder, bool resumes, RunConfig config,
                         RunObserver& observer, std::shared_ptr<OpenedRun> opened = nullptr);
  /// Throws InputError.
  static std::shared_ptr<OpenedRun> open(const RunConfig& config);
  ~Trainer();
  Trainer(Trainer&&) noexcept;

  /// Until the end, or until stop_requested() is true between two steps: then a checkpoint is written first.
  RunSummary run(const std::function<bool()>& stop_requested);

  const std::filesystem::path& folder() const;
  /// Whether what the run came to is this member's to tell. A team's leader may have changed on the way.
  bool leads() const;
  /// After run(): a part of the network is lost, and this is how those who are left can go on.
  const std::optional<RollBack>& roll_back() const;

 private:
  struct Run;
  struct Beginning {
    Team team;
    std::optional<std::filesystem::path> folder;  ///< one that is there already
    bool resumes = false;
    std::shared_ptr<OpenedRun> opened = nullptr;
  };
  Trainer(RunConfig config, RunObserver& observer, const Beginning& beginning);
  /// What the leader does before the first step.
  void begin(RunObserver& observer, const Beginning& beginning);
  std::unique_ptr<Run> run_;
};

/// What a configuration is about.
struct CheckedRun {
  RunConfig planned;  ///< with what the planner says of how the network is cut
  std::string model, data;
  std::string model_digest;   ///< of the parameters' names and shapes
  std::uint64_t samples = 0;  ///< to train on
  bool has_classes = true;
  bool has_test = false;
  bool has_validation = false;
};
/// Checks a configuration as a new run would, opening data and model, and plans how its network is cut, if it is.
/// Throws InputError.
CheckedRun check_run(const RunConfig& config, const PlanKnowledge& knowledge);
/// A folder in which no other process trains while this is there.
struct LockedFolder {
  std::filesystem::path path;
  FolderLock lock;
};
/// Makes the folder of a run whose configuration was checked, with its run.yaml, for whoever will train in it. Throws
/// InputError.
LockedFolder make_run_folder(RunConfig config, const CheckedRun& checked);
/// Both: for a job whose processes will train in it. When it throws there is no folder.
LockedFolder prepare_run(const RunConfig& config, const PlanKnowledge& knowledge);

/// Writes a changed configuration into the folder of a run that a job will go on with. Throws InputError.
LockedFolder change_run(const std::filesystem::path& folder, RunConfig config, const PlanKnowledge& knowledge);

/// The resolved configuration of the run in this folder.
RunConfig config_of_run(const std::filesystem::path& folder);

}  // namespace distbelief
