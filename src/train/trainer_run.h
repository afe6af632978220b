#pragma once

#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <optional>

#include "checkpoint/checkpoint.h"
#include "data/loader.h"
#include "exec/replica.h"
#include "metrics/event_file.h"
#include "metrics/metrics_log.h"
#include "params/schedule.h"
#include "plan/grid.h"
#include "strategy/strategy.h"
#include "strategy/unit_exchange.h"
#include "train/leader_links.h"
#include "train/parted_model.h"
#include "train/portion_books.h"
#include "train/run_data.h"
#include "train/run_folder.h"
#include "train/served_books.h"
#include "train/served_links.h"
#include "train/trained_model.h"
#include "train/trainer.h"

namespace distbelief {

/// Where a run stands, besides parameters, slots and the ledger: all of it goes into checkpoints.
struct TrainingState {
  std::int64_t step = 0;
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;  ///< samples of the epoch that are done
  LossSums epoch_sums;         ///< of the epoch so far
  LossSums logged_sums;        ///< since the last line of metrics
  double train_seconds = 0;
  double epoch_began = 0;  ///< in seconds of training
  double logged_at = 0;    ///< likewise: when metrics were last written
  double best_score = -1e300;
  std::int64_t best_step = -1;
  std::int64_t epochs_since_best = 0;
  EpochReport last;
  std::int64_t metrics_rows = 0;  ///< lines of metrics.jsonl
  std::uint64_t sent_bytes = 0;   ///< by all members to each other until the end of the last epoch
};

/// A file of a checkpoint: the audit, but where parameters are with servers.
inline constexpr const char* kLedgerBlob = "ledger.bin";
/// Files of a checkpoint of a run through parameter servers, besides those of the servers.
inline constexpr const char* kBooksBlob = "books.bin";
inline constexpr const char* kLeaderBlob = "leader.bin";

/// What a checkpoint has of parameter servers.
struct ServedState {
  std::string source;  ///< its path
  std::string books;
  std::string leader;
  std::vector<std::string> servers;
};

/// The parts of one run, in the order in which they are built.
struct Trainer::Run {
  RunConfig config;
  std::unique_ptr<WorkerActivity> own_activity;  ///< these two: when the team brings none
  std::unique_ptr<WorkerChaos> own_chaos;
  Team team;
  RunObserver& observer;
  RunData data;
  ModelCard card;
  Graph graph;
  ParameterTable table;
  // Where the network is cut over several workers, of which this one has a part.
  Grid grid;
  GridPlace grid_place;
  Partition partition;
  bool measured_shares = false;  ///< by which the work of a stage is shared out
  std::optional<NetworkPart> part;
  std::vector<NetworkPart> all_parts;  ///< a parameter server's: it holds some of the parameters of each
  std::optional<Group> column;         ///< those that have the same part of each copy
  std::unique_ptr<PartLinks> part_links;
  std::unique_ptr<PartedModel> parted;                                 ///< of the first copy
  std::optional<Checkpoint> to_share_out;                              ///< the leader's: what a run goes on from
  std::map<std::string, std::vector<std::uint64_t>> strategy_numbers;  ///< likewise
  std::unique_ptr<UpdateRule> rule;
  std::unique_ptr<UpdateRule> outer_rule;
  std::optional<Schedule> schedule;
  std::int64_t global_batch = 0;  ///< samples that all members together take in a step
  std::uint64_t steps_per_epoch = 0;
  ReplicaOptions replica_options;
  std::unique_ptr<Replica> replica;
  std::unique_ptr<Strategy> strategy;
  SampleLedger ledger;
  std::optional<SampleAudit> served_audit;   ///< instead of the ledger's, where parameters are with servers
  std::optional<StalenessCounts> staleness;  ///< likewise
  std::atomic<bool> worker_failed = false;   ///< likewise: the one beside the leader
  double rate_factor = 1;                    ///< likewise: what the guard against divergence has made of all rates
  std::function<bool(CheckpointState&)> served_state;  ///< likewise: adds what servers and books have; false: lost
  std::function<std::uint64_t()> served_bytes;         ///< likewise: that crossed links to and from servers
  std::optional<ServedState> restored;                 ///< likewise: what a run goes on from
  TrainingState state;
  std::optional<FolderLock> lock;   ///< of a run of one process; a job's is with whoever started it
  bool is_new = false;              ///< likewise: nothing of it was there before
  std::optional<RunFolder> folder;  ///< these three: the leader's
  std::optional<MetricsLog> metrics;
  std::unique_ptr<EventFile> events;
  std::int64_t checkpointed_step = -1;
  bool initialised = false;                  ///< from a file, which only the leader has read
  bool joined = false;                       ///< this member stands where the leader stood
  std::optional<std::uint64_t> sent_before;  ///< bytes, by the parts of a resumed run before this one

  Run(RunConfig given, const Team& members, RunObserver& watcher, RunData opened, ModelCard described);

  /// Of what this worker holds.
  const ParameterTable& own_table() const { return part ? part->table : table; }
  void take_part();
  /// Makes --shares of `auto` what the speeds of all workers are now: the same for all processes. Throws ExchangeLost.
  void measure_shares();
  int compute_threads() const;
  /// The same where parameters are with servers.
  void take_part_of_served();
  /// Opens the links to the other parts of this worker's copy, which `members` hold.
  void link_parts(Fabric& fabric, const std::vector<Rank>& members, std::uint32_t epoch);
  /// Of all parts; none when the network is not cut.
  std::vector<const ParameterTable*> tables_of_parts() const;
  /// What this process has of the parameters that servers hold; `values` is room for those that it has to make.
  std::vector<ServedLinks::Space> served_spaces(std::vector<std::vector<float>>& values) const;
  /// What a worker of a copy that several hold does together with them.
  UnitExchange::Options in_copy(UnitExchange::Options options);
  /// What a step comes to for all of them. Throws ExchangeLost.
  void agree_in_copy(StepReport& report);
  /// Another worker of this one's copy is lost, and so the copy: its samples go to others.
  RunSummary wait_until_given_up(const ExchangeLost& lost) const;
  /// The values and the strategy's state as lists of numbers.
  std::vector<PartedModel::List> lists();
  /// Before the first step: parts that a file has are shared out by the leader.
  void share_out();
  /// What a step, or what must be the same for all workers, comes to, where the network is cut.
  StepReport agreed(const std::function<StepReport()>& step) const;

  /// What servers and books have goes into and comes from a checkpoint.
  static std::string server_blob(std::size_t server) { return fmt::format("server-{}.bin", server); }
  void restore_served(const Checkpoint& checkpoint);
  /// Restores all of it from the newest sound checkpoint; false when there is none yet.
  bool restore();
  void write_checkpoint(std::optional<double> score);
  /// Brings all members to where the leader stands. Empty, or who was lost.
  std::string join_team();

  /// Tells whoever asks what this member does now.
  void doing(WorkerActivity::Kind kind) const { team.activity->begin(kind, state.step); }
  /// Steps from here to the next line of metrics or checkpoint; with chaos, which acts before each step, 1.
  std::int64_t updates_until_something_is_due() const;
  /// Units that one worker pushes before the others begin.
  std::int64_t warm_units() const;
  /// Of the update after `update` others, as the schedule and the configuration have it.
  UpdateOptions update_options(std::uint64_t update) const;
  RunSummary train(const std::function<bool()>& stop_requested);
  /// The same where parameters are with servers, and what a worker and the leader do then.
  RunSummary train_served(const std::function<bool()>& stop_requested);
  struct Working {
    Replica& replica;
    TrainingState& place;
    RunObserver& observer;
  };
  RunSummary work(ServedLinks& links, const Sampler& sampler, const Working& working,
                  const std::function<bool()>& stop_requested);
  /// What --chaos says of a server's links. A server counts steps by what it gets: a push of every worker is one.
  void let_go_wrong(const ParameterServer& server, const std::function<bool()>& stop_requested);
  /// The leader, with a worker beside it where servers are inside the workers.
  /// `lead` and `work` are what each of them does until it is to stop.
  using Part = std::function<RunSummary(const std::function<bool()>& stop_requested)>;
  using WorkingPart = std::function<RunSummary(const Working&, const std::function<bool()>& stop_requested)>;
  RunSummary lead_and_work(ServedLinks& links, const Part& lead, const WorkingPart& work,
                           const std::function<bool()>& stop_requested);
  /// Of a member that does not lead.
  RunSummary follow(ServedLinks& links, const WorkingPart& work, const std::function<bool()>& stop_requested);
  RunSummary lead(ServedLinks& links, LeaderLinks& leader, ServedBooks& books,
                  const std::function<bool()>& stop_requested);
  /// What leaders have in common. One version of each block, into the replica; the states of all servers, into a
  /// checkpoint: false when there is none, and `servers` says whether they live.
  Outcome snapshot(LeaderLinks& leader);
  /// Training is over, which each worker hears with its next word; who says none for too long is not waited for.
  void wait_for_the_last(const std::function<int()>& workers_left, const std::function<bool()>& somebody_died,
                         const std::function<bool()>& stop_requested) const;
  bool add_servers(LeaderLinks& leader, CheckpointState& saved, Outcome& servers);
  struct Leading;
  /// The same of a Sandblaster run, whose objective is evaluated over portions of the data.
  PortionTable::Options portion_options() const;
  RunSummary train_sandblaster(const std::function<bool()>& stop_requested);
  RunSummary work_on_portions(ServedLinks& links, const Sampler& sampler, const Working& working,
                              const std::function<bool()>& stop_requested);
  RunSummary lead_sandblaster(ServedLinks& links, PortionBooks& books, const std::function<bool()>& stop_requested);
  struct Blasting;
  void log_steps(double seconds);
  /// False when the report ends training; why is then in `summary`.
  bool went_on(const StepReport& report, const TrainingState& place, RunSummary& summary) const;
  /// Brings the members together; false when training ends here, and why is in `summary`.
  bool settle(BatchStream& batches, RunSummary& summary);
  /// Brings state.sent_bytes up to now; all members call it together.
  Outcome count_sent_bytes();
  /// Evaluates, reports, keeps the best. `enough`: training should stop here.
  Outcome end_epoch(double epoch_seconds, bool& enough);
  void log(const std::vector<std::pair<std::string, double>>& values);
  double epochs_done() const;

  /// Takes back what this run has written, if it began it and has no checkpoint yet.
  void discard();
  /// The model of a network that is cut, from its parts or, if that is better, from a checkpoint.
  void write_parted_model(RunSummary& summary);
  /// Writes the model, summary.json and report.html.
  void write_results(RunSummary& summary);
};

/// Brings numbers and JSON of a TrainingState together; text is a JSON object.
std::string state_text(const TrainingState& state, const std::map<std::string, std::vector<std::uint64_t>>& numbers);
void parse_state(const std::string& text, const std::string& file, TrainingState& state,
                 std::map<std::string, std::vector<std::uint64_t>>& numbers);

/// summary.json.
std::string summary_text(const RunSummary& summary, const RunConfig& config);

}  // namespace distbelief
