#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_writer.h"
#include "data/loader.h"
#include "exec/replica.h"
#include "metrics/event_file.h"
#include "metrics/metrics_log.h"
#include "params/schedule.h"
#include "plan/grid.h"
#include "strategy/strategy.h"
#include "strategy/unit_exchange.h"
#include "train/batch_shares.h"
#include "train/carried_state.h"
#include "train/leader_links.h"
#include "train/parted_model.h"
#include "train/portion_books.h"
#include "train/regrid.h"
#include "train/run_change.h"
#include "train/run_data.h"
#include "train/run_folder.h"
#include "train/run_progress.h"
#include "train/served_books.h"
#include "train/served_links.h"
#include "train/trained_model.h"
#include "train/trainer.h"
#include "train/whole_state.h"
#include "train/writing_trouble.h"

namespace distbelief {

struct OpenedRun {
  RunData data;
  ModelCard card;
};

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
  // The schedule counts steps of which so many are an epoch. When a run goes on with steps of another size it stays at
  // its place in the epochs, while `step` counts on.
  std::uint64_t steps_per_epoch = 0;
  std::int64_t schedule_ahead = 0;  ///< of `step`
  std::vector<TeamEvent> events;
  std::vector<MemberShare> shares;  ///< of the batch, where they are not equal ones

  /// Where the schedule stands when that step has been made.
  std::uint64_t scheduled(std::int64_t after) const {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(0, after + schedule_ahead));
  }
};

/// The last rows of metrics, each with its number in the file.
using LastRows = std::deque<std::pair<std::int64_t, MetricsRow>>;

/// All that a member must know to go on from where the team was together.
struct CommonPoint {
  CarriedState carried;
  TrainingState state;
  std::string ledger;
  std::string later;  ///< what is done already of epochs to come, as text
  LastRows rows;
};

/// A file of every checkpoint: the configuration that it was written with.
inline constexpr const char* kConfigBlob = "run.yaml";
/// Files of a checkpoint, but where parameters are with servers: the audit, and, where a run has taken over from
/// servers, what is done already of epochs to come.
inline constexpr const char* kLedgerBlob = "ledger.bin";
inline constexpr const char* kLaterBlob = "later.bin";
/// Files of a checkpoint of a run through parameter servers, besides those of the servers.
inline constexpr const char* kBooksBlob = "books.bin";
inline constexpr const char* kLeaderBlob = "leader.bin";

inline std::string server_blob(std::size_t server) { return fmt::format("server-{}.bin", server); }

/// What a checkpoint has of parameter servers.
struct ServedState {
  std::string source;  ///< its path
  std::string books;
  std::string leader;
  std::vector<std::string> servers;
};

/// What a checkpoint has for a run that goes on in another way.
struct ResumedState {
  WholeState whole;
  RunProgress progress;
  double rate_factor = 1;  ///< what the guard against divergence had made of all rates
};

/// What a step costs this member, from here on.
class StepMeter {
 public:
  /// Both borrowed.
  StepMeter(const ComputeWatch& watch, const Loader& loader);
  StepCosts costs(std::uint64_t host) const;

 private:
  const ComputeWatch& watch_;
  const Loader& loader_;
  const std::uint64_t leased_;
  const double computed_, loaded_;
  const Clock::time_point began_ = Clock::now();
};
/// Stands for this machine; never 0.
std::uint64_t host_number();

/// The parts of one run, in the order in which they are built.
struct Trainer::Run {
  RunConfig config;
  RunConfig original;                            ///< with which the job began
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
  /// Of parts, and formed after losses; MPI may know memory of the earlier ones.
  std::vector<std::unique_ptr<Group>> groups;
  std::unique_ptr<PartLinks> part_links;
  std::unique_ptr<PartedModel> parted;                ///< of the first copy
  std::vector<std::unique_ptr<PartLinks>> old_links;  ///< these two: of groups before, as `groups`
  std::vector<std::unique_ptr<PartedModel>> old_parted;
  std::uint32_t generation = 0;                                        ///< how often the network was cut anew
  bool given_up = false;                                               ///< the others go on without this worker,
  bool left = false;                                                   ///< because somebody wanted it so
  std::optional<RollBack> roll_back;                                   ///< how those who are left can go on
  std::function<void()> finish_prepared_step;                          ///< makes the step that others have made
  std::optional<Checkpoint> to_share_out;                              ///< the leader's: what a run goes on from,
  std::optional<ResumedState> resumed;                                 ///< or this, in its place
  std::optional<std::set<std::string>> taken_slots;                    ///< of the strategy's arrays; none: all
  std::map<std::string, std::vector<std::uint64_t>> strategy_numbers;  ///< likewise
  std::vector<std::string> resume_changes;                             ///< since then, a line each
  std::unique_ptr<UpdateRule> rule;
  std::unique_ptr<UpdateRule> outer_rule;
  std::optional<Schedule> schedule;
  std::int64_t global_batch = 0;              ///< samples that all members together take in a step
  std::int64_t worker_batch = 0;              ///< of these, a member's largest share
  std::vector<std::int64_t> shares;           ///< of the batch, of each member; empty: equal ones
  std::optional<BatchBalance> balance;        ///< none: shares stay as they are
  std::vector<MemberShare> told_shares = {};  ///< of which people know
  double rate_scale = 1;                      ///< not 1 when the batch follows the number of workers
  std::uint64_t steps_per_epoch = 0;
  ReplicaOptions replica_options;
  std::unique_ptr<Replica> replica;
  std::unique_ptr<Strategy> strategy;  ///< not of a worker that came, until it has met the others
  SampleLedger ledger;
  std::vector<EpochProgress> later_epochs;   ///< of epochs to come, what is done already
  std::optional<SampleAudit> served_audit;   ///< instead of the ledger's, where parameters are with servers
  std::optional<StalenessCounts> staleness;  ///< likewise
  std::optional<int> workers_seen;           ///< likewise: how many there were when the leader last looked
  std::int64_t chaos_told = 0;               ///< likewise: a server's steps that chaos has heard of
  std::atomic<bool> worker_failed = false;   ///< likewise: the one beside the leader
  double rate_factor = 1;                    ///< likewise: what the guard against divergence has made of all rates
  std::function<bool(CheckpointState&)> served_state;  ///< likewise: adds what servers and books have; false: lost
  std::function<std::uint64_t()> served_bytes;         ///< likewise: that crossed links to and from servers
  std::function<std::uint64_t()> moved_bytes;          ///< likewise: see ServedLinks::bytes_moved()
  std::optional<ServedState> restored;                 ///< likewise: what a run goes on from
  TrainingState state;
  std::optional<FolderLock> lock;   ///< of a run of one process; a job's is with whoever started it
  bool is_new = false;              ///< likewise: nothing of it was there before
  std::optional<RunFolder> folder;  ///< these three: the leader's
  std::optional<MetricsLog> metrics;
  std::unique_ptr<EventFile> events;
  std::int64_t checkpointed_step = -1;       ///< of the last that was to be written
  bool checkpoint_lost = false;              ///< but could not
  bool knows_checkpoint = false;             ///< that was written, or gone on from
  std::unique_ptr<CheckpointWriter> writer;  ///< this and the next four: the leader's
  std::int64_t kept_best_step = -1;          ///< of the last of those that were the best
  bool unclaimed = false;                    ///< see claim_folder()
  WritingTrouble checkpoint_trouble, copy_trouble, metrics_trouble;
  bool initialised = false;                  ///< from a file, which only the leader has read
  bool joined = false;                       ///< this member stands where the leader stood
  std::string ending;                        ///< how the run has ended for a member; empty: it trains
  std::optional<std::uint64_t> sent_before;  ///< bytes, by the parts of a resumed run before this one
  std::optional<CommonPoint> common;         ///< the last one, of a strategy whose members are together now and then
  LastRows last_rows;                        ///< of a member that does not lead: what the leader may die with
  std::vector<std::byte> goodbyes;           ///< where the last words of others come; MPI may know it to the end

  Run(RunConfig given, const Team& members, RunObserver& watcher, RunData opened, ModelCard described);

  /// Batches, steps and rates, as the number of members now wants them.
  void size_up();
  std::unique_ptr<Strategy> make_strategy();
  /// A group has formed: how its members share the batch out, by what is known of them.
  void settle_shares();
  void take_shares();
  /// What members have told of a step may say that others take more of the batch: true when shares are others now.
  bool rebalance(std::span<const StepCosts> costs);
  /// Where workers make each step together: of each of them.
  std::vector<MemberShare> batch_shares() const;

  /// The network was cut when the job began, and may be in one process now.
  bool is_cut() const { return parts_of(original) > 1 && team.served == nullptr; }
  /// Not of a worker that came to a network that is cut, until the others have given it a part.
  bool has_place() const { return replica != nullptr || team.served != nullptr; }
  void make_replica();

  /// Of what this worker holds.
  const ParameterTable& own_table() const { return part ? part->table : table; }
  void take_part();
  /// Its part, and all for its place, if the network is still cut.
  void hold_part();
  /// Sums over copies are made beside the exchanges of parts: as many threads use the links as the grid wants.
  void share_links() const;
  /// Opens the groups and links of this worker's place in the grid, as the team's group has it.
  void take_place();
  /// Makes --shares of `auto` what the speeds of all workers are now: the same for all processes. Throws ExchangeLost.
  void measure_shares();
  int compute_threads() const;
  /// The same where parameters are with servers.
  void take_part_of_served();
  /// Opens the links to the other parts of this worker's copy, which `members` hold.
  void link_parts(Fabric& fabric, const std::vector<Rank>& members, std::uint32_t epoch);
  /// Of all parts; none when the network is not cut.
  std::vector<const ParameterTable*> tables_of_parts() const { return tables_of(all_parts); }
  static std::vector<const ParameterTable*> tables_of(const std::vector<NetworkPart>& parts);
  /// The names of what all who share a stage have a copy of.
  std::vector<std::string> copied_in_stage(int stage) const;
  /// What this process has of the parameters that servers hold; `values` is room for those that it has to make.
  std::vector<ServedLinks::Space> served_spaces(std::vector<std::vector<float>>& values) const;
  /// What a worker of a copy that several hold does together with them.
  UnitExchange::Options in_copy(UnitExchange::Options options);
  /// What a step comes to for all of them. Throws ExchangeLost.
  void agree_in_copy(StepReport& report);
  /// What a worker does. Where it holds a part of a network and another of its copy is lost, so is the copy, and its
  /// samples go to others: it returns when the coordinator has said what is to become of this worker.
  RunSummary until_given_up(const std::function<RunSummary()>& work) const;
  /// The values and the strategy's state as lists of numbers.
  std::vector<PartedModel::List> lists();
  /// Before the first step: parts that a file has are shared out by the leader.
  void share_out();
  void share_out_resumed(std::span<const PartedModel::List> all);
  /// What a step, or what must be the same for all workers, comes to, where the network is cut.
  StepReport agreed(const std::function<StepReport()>& step) const;

  /// What servers and books have goes into and comes from a checkpoint.
  void restore_served(const Checkpoint& checkpoint, const RunConfig& before);
  /// Of a network as another run had cut it; none when it was whole there.
  std::vector<NetworkPart> parts_of_run(const RunConfig& before) const;
  /// What a checkpoint of the configuration `before` has for a run that is another one now.
  ResumedState resumed_state(const Checkpoint& checkpoint, const RunConfig& before,
                             const std::map<std::string, std::vector<std::uint64_t>>& numbers) const;
  ResumedState resumed_state_of_servers(const Checkpoint& checkpoint, const RunConfig& before) const;
  /// Restores what is not with servers, from a checkpoint of such a run, or from one of a run that had servers.
  void restore_strategy(const Checkpoint& checkpoint, const RunConfig& before,
                        std::map<std::string, std::vector<std::uint64_t>>& numbers);
  void take_from_servers(const Checkpoint& checkpoint, const RunConfig& before,
                         std::map<std::string, std::vector<std::uint64_t>>& numbers);
  /// The schedule stays at its place in the epochs, whatever is a step now.
  void keep_place_in_schedule();
  /// This epoch goes on, of which something is done.
  void take_up(const EpochProgress& epoch);
  /// Has the sampler hand out what is left of the epochs that have begun.
  void leave_out_what_is_done(Sampler& sampler) const;
  /// The next epoch begins, of which something may be done already.
  void begin_epoch();
  /// Restores all of it from the newest sound checkpoint; false when there is none yet.
  bool restore();
  /// Takes a copy of all that the checkpoint needs; it is written while training goes on. Where the network is cut all
  /// wait for it. If it cannot be written, training goes on, and the one before stays.
  void write_checkpoint(std::optional<double> score);
  void make_writer();
  /// Whether there is one already, for what people are told when the next cannot be written.
  bool has_one_before() const {
    return knows_checkpoint || (folder && holds_checkpoints(folder->checkpoints()));  // another may have written it
  }
  /// Tells people what became of checkpoints; if `wait`, of all that are under way too.
  void hear_of_checkpoints(bool wait);
  void heard(const CheckpointWriter::Result& result);
  /// Whether there is one of this step, or will be, as far as is known.
  bool has_checkpoint() const { return checkpointed_step == state.step && !checkpoint_lost; }
  /// Brings all members to where the leader stands. Empty, or who was lost.
  std::string join_team();

  /// A member is lost, or some came. True when all that are there now have formed a new group, of a view after
  /// `after`, and stand where the one of them stood that had come furthest. A loss meanwhile only makes it begin again.
  /// False: nobody knows enough to go on, or no group can be formed.
  bool regroup(std::uint32_t after);
  /// Who comes and goes after a step, as all members know it.
  struct Changes {
    std::uint32_t newest = 0;       ///< the epoch of the group that those who came are in; of this group: nobody did
    std::vector<int> leavers = {};  ///< positions
  };
  /// All members together. Of those who want to leave one has to stay for now, if nobody else knows all.
  Outcome agree_on_changes(Changes& changes) const;
  bool leaves(const Changes& changes) const;
  /// Lets those who leave know that this member knows.
  void let_leave(const Changes& changes);
  /// Of a member that leaves: when it returns, all others know, and nothing of it is under way.
  RunSummary leave_team(const Changes& changes);
  /// What this member knows, if it is all there is to know.
  std::optional<CommonPoint> own_point();
  struct Agreement {
    Outcome outcome;
    bool somebody_knows = true;
    std::optional<CommonPoint> point;
    std::vector<Rank> before;  ///< the members of the group in which it was reached
    std::string ending;        ///< as of Run
  };
  /// All members of a new group get the point of the one that has come furthest.
  Agreement agree_on_point(Group& group, std::optional<CommonPoint>& own);
  /// Of these, all but the carried state: those of the group get what its `source` has in `point`, and who the members
  /// of the source's group were.
  Outcome share_place(Group& group, int source, CommonPoint& point, std::vector<Rank>& before,
                      Clock::time_point deadline);
  void go_on_from(CommonPoint& point);
  /// Gets links to those of the next group that came. False: that group is not to be, but one later than `after`.
  bool admit(const NextTeam& next, std::uint32_t& after) const;
  /// The same as regroup() where the network is cut.
  bool regroup_parts(std::uint32_t after);
  enum class Going : std::uint8_t { on, over, again };
  PartStand own_stand() const;
  /// All who live, `all`, tell each other where they stand.
  Outcome tell_stands(Group& all, const NextTeam& next, std::vector<PartStand>& stands);
  /// Who came hears how the network is cut.
  Outcome tell_cut(Group& all, const std::vector<PartStand>& stands);
  /// What another worker told, with what is each process's own.
  RunConfig told_config(const std::string& text) const;
  /// Those who lack the state of their part get it, in `carried`, from who has it there.
  Outcome hand_over(const Regrid& plan, const NextTeam& next, Rank self, CarriedState& carried);
  /// Forms the groups of the plan, if nobody is lost meanwhile. `end`: how the run has ended, as a number.
  Going go_on_with(const Regrid& plan, const NextTeam& next, Group& all, std::uint64_t end);
  /// Nobody has some part: the network is cut anew for those who live, and comes from the newest checkpoint.
  Going go_back(const NextTeam& next, Group& all, const std::vector<PartStand>& stands);
  /// How the network is to be cut for so many workers, each with so much memory; nothing when it cannot. A function of
  /// these and of what the job began with.
  std::optional<RunConfig> config_for(int workers, std::uint64_t memory) const;
  /// Another member has left because training is over.
  bool somebody_is_done(const std::vector<Rank>& now) const;
  bool somebody_died(const std::vector<Rank>& before, const std::vector<Rank>& now) const;
  /// Another worker leads, and has the folder.
  void leave_folder();
  /// This worker ends.
  void give_way();
  /// Tells people why this team begins from a checkpoint.
  void note_way_back();
  /// "2 copies of 2 stages of 1 worker, 8 micro-batches".
  std::string team_text() const;
  std::string changes_text(const std::vector<Rank>& before, const Regrid& plan, const std::vector<Rank>& leaving) const;
  void note_who_came_and_went(const std::vector<Rank>& before, const std::vector<Rank>& now);
  static std::uint64_t ending_number(const std::string& ending);
  static std::string ending_text(std::uint64_t number);
  /// Writes down who was lost, and tells people.
  void note_changes(const std::vector<Rank>& before);
  /// The leader's files stand where the run stands; false when this host does not see them.
  bool open_files();
  /// Writes down since when this member leads, for one who led before and comes back; when the disk is full, with a
  /// later checkpoint.
  void claim_folder();
  /// Somebody has taken the folder over since this member's group was formed: it was given up, and writes no more.
  bool led_by_others() const;
  /// All members are done, and the leader has written and told what came of it: whoever dies before, another does it.
  bool ended_together(const RunSummary& summary);
  /// For a strategy that is not in step: the team is together here.
  void remember_common();

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
  /// A turn of a server that has no other part: tells that it serves, and lets go wrong what --chaos says. It counts
  /// steps by what it gets: a push of every worker is one.
  void serve_on(std::uint64_t pushes_taken, const std::function<bool()>& stop_requested);
  using Part = std::function<RunSummary(const std::function<bool()>& stop_requested)>;
  using WorkingPart = std::function<RunSummary(const Working&, const std::function<bool()>& stop_requested)>;
  /// Nothing comes of a lead that was given up.
  using LeadingPart = std::function<std::optional<RunSummary>(const std::function<bool()>& stop_requested)>;
  /// What members of a job with servers do until they are to stop: who leads from the start, who leads in the place of
  /// one that is gone, and who works.
  struct ServedParts {
    LeadingPart lead;
    LeadingPart take_over;
    WorkingPart work;
  };
  /// Does what is this member's to do.
  RunSummary take_part(ServedLinks& links, const ServedParts& parts, const std::function<bool()>& stop_requested);
  /// Where servers are inside the workers: `serve` with a worker beside it.
  RunSummary work_beside(ServedLinks& links, const WorkingPart& work, const Part& serve,
                         const std::function<bool()>& stop_requested);
  /// Of a server that does not lead, as long as it does not: `take_over` is what it does from then on.
  RunSummary follow(ServedLinks& links, const LeadingPart& take_over, const std::function<bool()>& stop_requested);
  /// The leader's, where servers are inside the workers: one of these is gone that nobody can do without.
  bool is_without_a_worker() const;
  /// Of a leader's run that was stopped: nobody asked for that when the coordinator is lost.
  void blame_coordinator(RunSummary& summary) const;
  /// What is still to be leased, for a coordinator that came back.
  LeaseTable::Options plan_again(ServedBooks& books, const LeaseQuestion& question) const;
  /// The leader's: tells people who came and went, and what became of parameters.
  void tell_news(ServedLinks& links, const std::function<bool()>& stop_requested);
  /// Writes down who came and went, and tells people.
  void note_team_changes();
  /// With `note` in the place of another leader, which kept it last: see Leading. Nothing when this server leaves, and
  /// another is to lead.
  std::optional<RunSummary> lead(ServedLinks& links, LeaderLinks& leader, ServedBooks& books,
                                 const std::optional<std::string>& note, const std::function<bool()>& stop_requested);
  /// Ends what a leader that leaves must not leave half done: from here on another may write the run's folder.
  void end_leading();
  /// What a leader keeps for the next one: where the run stands, these numbers, and what it knows besides.
  std::string leader_note(std::map<std::string, std::vector<std::uint64_t>> numbers, const std::string& own) const;
  struct TakenOver {
    std::map<std::string, std::vector<std::uint64_t>> numbers;
    std::string own;
  };
  /// From here on this server leads, where another stood when it kept this. Opens the run's folder. Throws Error when
  /// it is not to be seen here.
  TakenOver take_over_from(const std::string& note);
  /// A leader's, before it writes anything: whether it was stopped so long that another may lead now, and one does.
  /// `looked_at` is when it looked last.
  bool deposed(Clock::time_point& looked_at) const;
  /// Of a leader that is: it ends without a word in the run's folder.
  RunSummary end_deposed() const;
  /// Of a run that ends because parameters are lost: how much was done since the checkpoint that is left.
  std::string rolled_back() const;
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
  /// What the coordinator is told: portions are handed out by who leads.
  LeaseTable::Options no_leases() const;
  RunSummary train_sandblaster(const std::function<bool()>& stop_requested);
  RunSummary work_on_portions(ServedLinks& links, const Sampler& sampler, const Working& working,
                              const std::function<bool()>& stop_requested);
  std::optional<RunSummary> lead_sandblaster(ServedLinks& links, PortionBooks& books,
                                             const std::optional<std::string>& note,
                                             const std::function<bool()>& stop_requested);
  struct Blasting;
  void log_steps(double seconds);
  /// False when the report ends training; why is then in `summary`.
  bool went_on(const StepReport& report, const TrainingState& place, RunSummary& summary) const;
  /// Brings the members together.
  StepReport settle(BatchStream& batches);
  /// Brings state.sent_bytes up to now; all members call it together.
  Outcome count_sent_bytes();
  /// Evaluates, reports, keeps the best. `enough`: training should stop here.
  Outcome end_epoch(double epoch_seconds, bool& enough);
  void log(const std::vector<std::pair<std::string, double>>& values);
  double epochs_done() const;

  /// Takes back what this run has written, if it began it and has no checkpoint yet.
  void discard();
  /// The checkpoint that did best on validation data; if that cannot be read, the best or the newest of those that can,
  /// and people are told. Throws FileError when there is none.
  Checkpoint best_checkpoint(RunSummary& summary) const;
  /// The model of a network that is cut, from its parts or, if that is better, from a checkpoint.
  void write_parted_model(RunSummary& summary);
  /// Writes the model, summary.json and report.html.
  void write_results(RunSummary& summary);
};

/// "workers 3, 4 end", "worker 3 ends".
std::string workers_end_text(const std::vector<Rank>& ranks);

/// What tells the parameters of one model from those of another.
inline std::string digest_text(const ParameterTable& table) { return fmt::format("{:016x}", table.digest()); }

/// Brings numbers and JSON of a TrainingState together; text is a JSON object.
std::string state_text(const TrainingState& state, const std::map<std::string, std::vector<std::uint64_t>>& numbers);
void parse_state(const std::string& text, const std::string& file, TrainingState& state,
                 std::map<std::string, std::vector<std::uint64_t>>& numbers);

/// summary.json.
std::string summary_text(const RunSummary& summary, const RunConfig& config);

}  // namespace distbelief
