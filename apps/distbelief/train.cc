#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/print.h"
#include "cluster/chaos_random.h"
#include "cluster/child_process.h"
#include "cluster/job_file.h"
#include "commands.h"
#include "given_config.h"
#include "metrics/format.h"
#include "signals.h"
#include "train/chaos_verdict.h"
#include "train/core_share.h"
#include "train/job_hosts.h"
#include "train/job_launch.h"
#include "train/job_rank.h"
#include "train/job_store.h"
#include "train/job_tls.h"
#include "train/machine_costs.h"
#include "train/run_remainder.h"
#include "train/thread_team.h"
#include "train/trainer.h"
#include "transport/mpi/mpi_world.h"
#include "versions.h"

namespace distbelief {
namespace {

/// Shows a run on the terminal, or as plain lines where there is none.
class ShowRun : public RunObserver {
 public:
  ShowRun(const Terminal& terminal, const RunConfig& config)
      : round_(is_sandblaster(config) ? "iteration" : "epoch"),
        progress_({.out = stdout, .terminal = terminal.is_terminal, .color = terminal.color}) {}

  void started(const std::vector<std::string>& lines) override {
    for (const std::string& line : lines) {
      progress_.line(line);
    }
  }
  void stepped(const ProgressState& state) override {
    ProgressState shown = state;
    shown.round = round_;
    progress_.update(shown);
  }
  void epoch_ended(const EpochReport& report) override {
    std::string line = fmt::format("{} {:>3}  loss {:.4f}", round_, report.epoch, unsigned_nan(report.train_loss));
    const auto part = [&](const char* name, const std::optional<double>& loss, const std::optional<double>& right) {
      if (right) {
        line += fmt::format("   {} {}", name, percent_text(*right));
      } else if (loss) {
        line += fmt::format("   {} loss {:.4f}", name, unsigned_nan(*loss));
      }
    };
    part("validation", report.validation_loss, report.validation_accuracy);
    part("test", report.test_loss, report.test_accuracy);
    if (report.samples_per_second > 0) {  // else it ended while nobody measured
      line += fmt::format("   {} samples/s", short_number(report.samples_per_second));
    }
    line += report.best ? "   best so far" : "";
    progress_.line(line);
  }
  void note(std::string_view text) override { progress_.line(text); }

 private:
  const std::string_view round_;
  ProgressDisplay progress_;
};

/// What a user can do after a run that did not end by itself.
std::string way_on(const RunSummary& summary) {
  return fmt::format("; go on with: distbelief train --resume {}", summary.folder.string());
}

/// As when a signal ends a process: this one's, or that of its workers.
int code_of_stop() { return 128 + (stop_signal() == 0 ? SIGTERM : stop_signal()); }

/// 0, or the exit code of a run that did not keep what it must keep, whatever --chaos does.
int show_verdict(const RunConfig& config, const RunSummary& summary) {
  if (config.chaos.empty() || summary.status == "interrupted" || !std::filesystem::exists(summary.folder)) {
    return 0;
  }
  const ChaosVerdict verdict = judge_chaos(config, summary);
  print_out("chaos           {}\n", verdict.text());
  if (std::filesystem::exists(summary.folder / "summary.json")) {
    write_verdict(verdict, summary.folder);
  }
  return verdict.passed() ? 0 : 1;
}

int show_summary(const RunSummary& summary) {
  print_out("\n");
  if (summary.status == "diverged") {
    const std::filesystem::path checkpoints = summary.folder / "checkpoints";
    print_error("distbelief: training diverged: {}; {}\n", summary.problem,
                std::filesystem::exists(checkpoints) ? "the last good checkpoint is kept in " + checkpoints.string()
                                                     : "there is no checkpoint yet");
    return 3;
  }
  if (summary.status == "lost") {
    print_error("distbelief: a {} was lost: {}{}\n", summary.servers > 0 ? "process" : "worker", summary.problem,
                way_on(summary));
    return 4;
  }
  if (summary.status == "interrupted" && summary.steps == 0) {
    print_out("stopped{}\n", way_on(summary));
    return code_of_stop();
  }
  if (summary.last.test_accuracy) {
    print_out("test accuracy   {}\n", percent_text(*summary.last.test_accuracy));
  } else if (summary.last.test_loss) {
    print_out("test loss       {:.4f}\n", unsigned_nan(*summary.last.test_loss));
  }
  print_out("training time   {}, {} samples/s\n", duration_text(summary.train_seconds),
            short_number(summary.samples_per_second));
  const SampleAudit& audit = summary.samples;
  print_out("samples         {} leased, {} applied, {} dropped, {} lost, {} twice\n", grouped(audit.leased),
            grouped(audit.applied), grouped(audit.dropped), grouped(audit.lost), grouped(audit.duplicated));
  print_out("results         {}\n", summary.folder.string());
  if (summary.status == "interrupted") {
    print_out("\nstopped after step {}{}\n", summary.steps, way_on(summary));
    return code_of_stop();
  }
  return 0;
}

struct TrainArguments {
  std::string resume;
  GivenConfig given;
};

/// Threads that the program chose for the processes of a run are chosen anew for others that it goes on as: `workers`.
void choose_threads_anew(const RunConfig& before, const GivenConfig& given, std::int64_t workers, RunConfig& config) {
  RunConfig asked = before;
  asked.threads = 0;
  asked.thread_mode = "auto";
  asked = resolve_given(std::move(asked), given);
  const bool is_one_now = is_of_one_process(config.algorithm);
  if (is_one_now && !is_of_one_process(before.algorithm) && asked.threads == 0) {
    config.threads = std::min<std::int64_t>(config.threads, usable_cores());
  }
  if (is_one_now || (workers == before.workers && parts_of(config) == parts_of(before))) {
    return;
  }
  config.threads = asked.threads;
  if (!has_hogwild_workers(before)) {  // which a user chose
    config.thread_mode = asked.thread_mode;
  }
}

/// `asked` is how many workers the user asked for, 0 when nobody has said.
RunConfig resolve(const TrainArguments& arguments, const MpiLauncher& launcher, std::int64_t& asked) {
  RunConfig config = arguments.resume.empty() ? RunConfig{} : config_of_run(arguments.resume);
  const RunConfig before = config;
  const std::int64_t workers = std::exchange(config.workers, 0);  // 0: nobody has said
  config = resolve_given(std::move(config), arguments.given);
  const bool counted = config.workers > 0 || config.replicas > 0;
  if (!arguments.resume.empty() && config.algorithm != before.algorithm) {
    if (is_of_one_process(config.algorithm) && parts_of(config) == parts_of(before)) {
      leave_out_cut(config);
    }
    if (is_of_one_process(config.algorithm)) {  // which gets the threads of those workers, unless others are asked for
      config.workers = config.threads == before.threads ? workers : 1;
    }
    leave_out_what_is_for_others(config);
  }
  if (!arguments.resume.empty() && config.workers > 0 && config.replicas == before.replicas) {
    config.replicas = 0;  // so many workers were asked for, not so many copies
  }
  forget_other_plan(before, config);
  if (!arguments.resume.empty() && config.workers == 0 && config.replicas == before.replicas && parts_of(config) > 1 &&
      parts_of(config) == parts_of(before)) {
    config.workers = workers;
  }
  settle_grid(config);
  asked = counted && (config.workers > 1 || !is_of_one_process(config.algorithm)) ? config.workers : 0;
  settle_hosts(config, workers);
  if (!arguments.resume.empty()) {
    const std::int64_t servers = processes_of(config) - config.workers;
    choose_threads_anew(before, arguments.given, launcher.size > 1 ? launcher.size - servers : config.workers, config);
  }
  settle_tls(config);
  return config;
}

/// Says what --chaos random:SEED means for this job.
void draw_chaos(RunConfig& config, const MpiLauncher& launcher, RunObserver& show) {
  const std::string drawn = config.chaos;
  if (!random_chaos_seed(drawn)) {
    return;
  }
  RunConfig job = config;
  if (launcher.size > 1) {  // whose ranks are the workers and the servers
    job.workers = std::max<std::int64_t>(1, launcher.size - (processes_of(config) - config.workers));
  }
  settle_chaos(job);
  config.chaos = job.chaos;
  if (launcher.rank == 0) {
    show.note(fmt::format("chaos   {} is: {}", drawn, config.chaos));
  }
}

std::string mpirun_of_this_build() { return mpi_of_this_build() == "MPICH" ? "mpiexec.hydra" : "mpirun.openmpi"; }

/// What people should know before they rely on MPI for more than it gives.
void warn_of_mpi(const RunConfig& config, RunObserver& show) {
  if (mpi_of_this_build() == "MPICH") {
    show.note(
        "note    when a worker dies MPICH mostly ends the others too, without a last checkpoint; with "
        "--transport socket they live");
  }
  if (!config.hosts.empty()) {
    show.note(
        "note    over a network MPI mostly ends all workers when one dies, without a last checkpoint; "
        "--transport socket changes that");
  }
  if (!config.tls_cert.empty()) {
    show.note("note    TLS is for the control connections only: MPI does not encrypt; --transport socket does");
  }
}

/// What `auto` means here.
std::string transport_of(const RunConfig& config) {
  if (config.transport != "auto") {
    return config.transport;
  }
  // Over a network MPI takes the survivors along when a worker dies, and it does not encrypt.
  const bool sockets = mpi_of_this_build().empty() || !config.hosts.empty() || !config.tls_cert.empty();
  return sockets ? "socket" : "mpi";
}

}  // namespace

void add_train_command(CLI::App& app, const Terminal& terminal, const JobPlace& place, int& exit_code) {
  CLI::App* command = app.add_subcommand("train", "Train a model and write a folder of results");
  command->group("Train and use");
  const auto arguments = std::make_shared<TrainArguments>();  // shared with the callback, which outlives this function
  command->add_option("--resume", arguments->resume, "go on with the run in this folder from its newest checkpoint")
      ->type_name("DIR")
      ->group("Configuration");
  add_given_config(*command, arguments->given);
  command->footer(
      "Examples:\n"
      "  distbelief train                                      lenet on Fashion-MNIST\n"
      "  distbelief train --model mlp --epochs 10 --lr 0.1 --schedule cosine\n"
      "  distbelief train --model resnet18 --data photos/ --image-size 96 --flip --validation 0.1\n"
      "  distbelief train --model net.yaml --data table.csv --optimizer adam --lr 0.001\n"
      "  distbelief train runs/a/run.yaml --set seed=2 --out runs/b\n"
      "  distbelief train --hosts alpha:4,beta:4 --algorithm allreduce --out runs/team");
  command->callback([arguments, &terminal, place, &exit_code] {
    if (place.launcher_pid > 0) {
      die_with_parent(place.launcher_pid, SIGTERM);  // one run of a comparison, which ends with a last checkpoint
    }
    std::int64_t asked = 0;
    RunConfig config = resolve(*arguments, place.mpi, asked);
    ShowRun show(terminal, config);
    if (place.mpi.size > 1 && config.algorithm == "local") {
      config.algorithm = "allreduce";  // one process a rank; `local` would be as many runs of their own
    }
    draw_chaos(config, place.mpi, show);
    const auto end_of = [&config](const RunSummary& summary) {
      const int code = show_summary(summary);
      const int verdict = show_verdict(config, summary);
      return code != 0 ? code : verdict;
    };
    const bool resumes = !arguments->resume.empty();
    const auto stop_requested = [] { return stop_signal() != 0; };
    if (place.mpi.size > 1) {
      catch_stop_signals();
      const WorkerResult result = train_as_rank({.launcher = place.mpi,
                                                 .program = place.program,
                                                 .environment = place.environment,
                                                 .resume = arguments->resume,
                                                 .version = DISTBELIEF_VERSION,
                                                 .workers = asked,
                                                 .leave_requested = [] { return stop_signal_came(SIGTERM); },
                                                 .say =
                                                     [](const std::string& line) {
                                                       print_out("{}\n", line);
                                                       std::fflush(stdout);
                                                     }},
                                                config, show, [] { return stop_signal_came(SIGINT); });
      exit_code = result.tells ? end_of(result.summary) : result.exit_code;
      if (result.leave_at_once) {
        std::fflush(nullptr);
        ::_exit(exit_code);
      }
      return;
    }
    if (resumes) {
      if (const std::string line = nothing_left_to_do(arguments->resume, config); !line.empty()) {
        remove_stale_job_file(arguments->resume);  // of a job that was killed between its end and its tidying up
        print_out("{}\n", line);
        return;
      }
    }
    if (!is_of_one_process(config.algorithm)) {
      check_store(config);
      const PlanKnowledge knowledge = {.cache = cache_folder(place.environment),
                                       .note = [&show](std::string_view line) { show.note(line); }};
      const LockedFolder locked =
          resumes ? change_run(arguments->resume, config, knowledge) : prepare_run(config, knowledge);
      const std::filesystem::path& folder = locked.path;
      catch_stop_signals();
      const std::string transport = transport_of(config);
      if (transport == "mpi") {
        warn_of_mpi(config, show);
      }
      if (transport == "threads") {
        exit_code = end_of(train_on_threads(folder, resumes, config_of_run(folder), show, stop_requested));
        return;
      }
      exit_code = end_of(train_in_processes({.program = place.program,
                                             .environment = place.environment,
                                             .folder = folder,
                                             .resumes = resumes,
                                             .transport = transport,
                                             .mpirun = mpirun_of_this_build(),
                                             .version = DISTBELIEF_VERSION,
                                             .as_root = place.as_root,
                                             .stop_at_once = [] { return stop_signals() > 1; }},
                                            config, show, stop_requested));
      return;
    }
    Trainer trainer = resumes ? Trainer::resume(arguments->resume, config, show) : Trainer(config, show);
    catch_stop_signals();
    exit_code = end_of(trainer.run(stop_requested));
  });
}

}  // namespace distbelief
