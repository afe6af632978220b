#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace distbelief {

/// Everything that decides what a run does. Each member is an option of the command line and a key of run.yaml, under
/// the name that run_options() gives it; docs/options.md lists them.
struct RunConfig {
  // what is trained, on what
  std::string model = "lenet";
  std::map<std::string, std::string> model_options;
  std::string data = "fashion-mnist";
  std::string test_data;
  std::string data_dir;
  std::string label_column;
  std::string label_kind = "auto";
  std::int64_t image_size = 0;
  std::int64_t features = 0;
  std::string normalize = "auto";
  std::int64_t crop_padding = 0;
  bool flip = false;
  double validation = 0;
  // how long and in which steps
  std::int64_t epochs = 5;
  std::int64_t batch = 128;
  std::int64_t accumulate = 1;
  std::uint64_t seed = 1;
  std::int64_t early_stop = 0;
  // the update
  std::string optimizer = "sgd";
  double lr = 0.05;
  double momentum = -1;  ///< below 0: as the rule has it
  bool nesterov = false;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double rho = 0.99;
  double epsilon = -1;  ///< below 0: as the rule has it
  double weight_decay = 0;
  double clip_norm = 0;
  double clip_value = 0;
  std::string schedule = "constant";
  double warmup_epochs = 0;
  double step_every = 0;
  std::vector<double> milestones;
  double gamma = 0.1;
  double lr_floor = 0;
  // who computes
  std::string algorithm = "local";
  std::int64_t workers = 1;
  std::string transport = "auto";
  // one network over several workers
  std::int64_t partition = 0;  ///< these four: 0: nobody has said
  std::int64_t stages = 0;
  std::int64_t tensor = 0;
  std::int64_t replicas = 0;
  std::string stage_at;            ///< the first layer of each stage but the first; empty: as the planner has it
  std::string cuts;                ///< "layer=outputs,..."; likewise
  std::string shares;              ///< "3,1": of the work of a stage, by speed; auto: as measured; empty: equal ones
  std::int64_t micro_batches = 0;  ///< of a pipeline; 0: as the planner has it
  std::string pipeline = "1f1b";
  bool recompute = false;
  // which algorithm, in particular
  std::int64_t average_every = 0;  ///< steps; 0: at the end of each epoch; below 0: once, at the end of training
  std::string outer_optimizer = "none";
  double outer_lr = 1;
  double outer_momentum = 0.9;
  std::int64_t servers = 1;      ///< of algorithms that have them
  std::int64_t replication = 2;  ///< see holders_of()
  std::int64_t shelves = 0;      ///< 0: chosen; see shelves_of() of train/
  std::int64_t n_push = 1;
  std::int64_t n_fetch = 1;
  std::string prefetch = "auto";
  std::string adaptive = "off";
  std::int64_t n = 1;  ///< of softsync
  std::string staleness_lr = "auto";
  std::int64_t warm_start = 0;
  std::string divergence_guard = "on";
  std::int64_t backup_workers = 0;  ///< of sync
  std::int64_t max_staleness = -1;  ///< below 0: no bound
  std::int64_t iterations = 100;    ///< these eight: of sandblaster
  std::int64_t history = 10;
  std::int64_t portion = 0;  ///< samples; 0: so that each worker has many
  std::int64_t portions_per_push = 4;
  std::string backup_portions = "on";
  double subset = 1;
  double subset_growth = 2;
  double tolerance = 0;
  std::string elastic_batch = "global";  ///< of allreduce and sync
  std::string balance = "auto";          ///< likewise: auto, on, off or "3,1"
  std::int64_t gossip_quorum = -1;       ///< below 0: half of the others, rounded up
  bool hogwild_locks = false;
  std::int64_t threads = 0;  ///< of each worker; 0: the cores that this machine's workers may use, shared out
  std::string thread_mode = "auto";
  std::string bind = "cores";
  std::int64_t loader_threads = -1;  ///< below 0: as the data needs
  // what may go wrong
  std::string chaos;
  std::int64_t restarts = 0;
  std::string store;         ///< of what the coordinator knows: "etcd://..."; empty: the run's folder
  std::int64_t standby = 0;  ///< processes that wait for a worker's death
  double stall_after = 60;
  double straggler_after = 10;
  // on which machines, and how they trust each other
  std::string hosts;  ///< "a:4,b:4"; empty: this machine
  std::string rsh = "ssh -o BatchMode=yes";
  std::string listen;
  std::string advertise;
  std::string tls_cert;
  std::string tls_key;
  std::string tls_ca;
  // where it begins and what is kept
  std::string init;
  std::vector<std::string> freeze;
  std::string out;
  std::int64_t checkpoint_every = 0;
  std::int64_t keep_checkpoints = 3;
  std::string checkpoint_copy;
  std::int64_t log_every = 50;
};

/// One option of a run. Values travel as text, so that the command line, run.yaml and --set share all checks.
struct RunOption {
  std::string key;
  std::string value;  ///< what the help calls the value; empty for a switch
  std::string help;
  std::string group;
  std::vector<std::string> choices;
  std::function<std::string(const RunConfig&)> get;
  /// Throws InputError that says what was expected and what came; the caller adds where it came from.
  std::function<void(RunConfig&, const std::string&)> set;
};

/// All options, in the order in which people read about them.
const std::vector<RunOption>& run_options();

/// Sets one key. Throws InputError beginning with `where` ("run.yaml:3", "--lr"), naming the key; for a key that does
/// not exist, the nearest that does.
void set_option(RunConfig& config, std::string_view key, const std::string& value, std::string_view where);

/// Applies a YAML file of keys and values on top of `config`. Errors name file, line and key.
void apply_config_file(RunConfig& config, const std::filesystem::path& file);
/// The same from text; `name` stands for the file in errors.
void apply_config_text(RunConfig& config, const std::string& text, const std::string& name);

/// The whole configuration as YAML that apply_config_text() reads back to an equal one.
std::string config_text(const RunConfig& config);

/// The network is in one process again, whatever was said of how it is cut.
void leave_out_cut(RunConfig& config);

/// Whether the algorithm is one of a single process, without a group, a coordinator or a launcher.
bool is_of_one_process(std::string_view algorithm);

/// Whether --batch is shared out over the workers, which make each step together; otherwise it is each worker's.
bool is_synchronous(const RunConfig& config);
/// Whether the threads of a worker each take batches of their own of what it pushes.
bool has_hogwild_workers(const RunConfig& config);

/// Whether the parameters are with servers, which the workers push to and fetch from.
bool is_served(const RunConfig& config);
/// Workers and servers.
std::int64_t processes_of(const RunConfig& config);
/// "worker" or "server": what the process of this rank is.
std::string_view role_of_rank(const RunConfig& config, int rank);

/// Workers that hold one copy of the network together, and how many copies there are.
std::int64_t parts_of(const RunConfig& config);
/// How many servers, or workers with a server inside, hold each parameter: one where there is one, where the network is
/// cut, and where all are threads of one process.
std::int64_t holders_of(const RunConfig& config);
std::int64_t replicas_of(const RunConfig& config);
/// What was planned for another grid is forgotten: `before` is what a run was begun with, `config` what it shall be
/// now.
void forget_other_plan(const RunConfig& before, RunConfig& config);
/// Brings --workers, --replicas, --partition, --stages and --tensor together; `workers` 0: nobody has said. Throws
/// InputError when they contradict each other.
void settle_grid(RunConfig& config);

/// Whether training goes on when a worker dies, as long as another lives.
bool goes_on_without_a_worker(const RunConfig& config);
/// Whether workers can be asked to leave while the others go on.
bool workers_may_leave(const RunConfig& config);
/// Whether workers can come one by one while the others train: not where a network is cut, nor where servers are inside
/// workers and stay as they are.
bool takes_newcomers(const RunConfig& config);
/// Where workers hold a network that is cut, without servers: who comes takes the place of a dead one, for which the
/// others wait, or makes one more copy with others that came; and copies may leave.
bool workers_hold_parts(const RunConfig& config);
/// Where servers hold a network that is cut: copies of it come and go whole, made of whoever waits.
bool copies_come_whole(const RunConfig& config);
/// Whether those who come to the job wait until there are enough for one more copy of the network.
bool takes_copies(const RunConfig& config);
/// Whether others can come while workers train, in any of these ways.
bool takes_workers(const RunConfig& config);
/// Whether a dead worker's place can be taken by one of them: not where parameters died with it.
bool replaces_workers(const RunConfig& config);
/// Whether parameters move to and from servers, or workers with a server inside, that come and go while the job runs.
bool parameters_may_move(const RunConfig& config);
/// Of servers that are processes of their own: others may come while the job runs, and all but the last may leave.
bool servers_may_change(const RunConfig& config);
/// Of other jobs, in words: "--algorithm allreduce has no servers".
std::string why_servers_stay(const RunConfig& config);
/// --chaos random:SEED becomes the script that it means for this job. Throws InputError when there can be none.
void settle_chaos(RunConfig& config);

/// Whether the batch may be shared out by what workers can do.
bool may_balance(const RunConfig& config);
/// What --balance fixes the shares of the first workers to be in proportion to; empty: it does not.
std::vector<std::uint64_t> fixed_balance(const RunConfig& config);

/// Samples that all workers together take in a step, and the most that one of them takes when shares are equal.
std::int64_t global_batch(const RunConfig& config);
std::int64_t batch_per_worker(const RunConfig& config);
/// With servers: samples of a push, and gradients of so many workers that make a step.
std::int64_t unit_samples(const RunConfig& config);
std::int64_t units_of_step(const RunConfig& config);
/// With servers: whether values that are fetched every so many batches are asked for one batch early.
bool prefetches(const RunConfig& config, std::int64_t fetch_every);

/// Whether training is L-BFGS, whose objective is evaluated over many portions of the data.
bool is_sandblaster(const RunConfig& config);

/// Threads that read ahead; nothing: as the data needs.
std::optional<int> loader_threads(const RunConfig& config);

/// Throws InputError for combinations that make no sense.
void check_config(const RunConfig& config);

/// Throws InputError for an option that is set though the algorithm has no use for it.
void check_algorithm_options(const RunConfig& config);
/// Takes back what was said for other algorithms.
void leave_out_what_is_for_others(RunConfig& config);

}  // namespace distbelief
