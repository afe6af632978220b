#pragma once

#include <CLI/CLI.hpp>

#include "config/run_config.h"
#include "transport/mpi/mpi_launcher.h"

namespace distbelief {

/// What every command may need of the outside world. The environment is read in main() only.
struct Terminal {
  bool is_terminal = false;
  bool color = false;
  std::size_t width = 100;  ///< columns to fill, also where there is no terminal
};

/// What the processes of a job are told by the environment, and what they need to start others.
struct JobPlace {
  std::string program;                   ///< this executable
  std::vector<std::string> environment;  ///< "KEY=VALUE"
  std::uint64_t launch = 0;              ///< the number the launcher gave this process, 0 when none started it
  int launcher_pid = 0;                  ///< the process to die with, 0 when there is none
  std::string token;                     ///< of the job that is meant, if the environment says so
  bool as_root = false;
  MpiLauncher mpi;  ///< who started this process as one of many, if anybody did
};

/// Each adds one subcommand; its callback sets `exit_code` and may throw Error.
void add_train_command(CLI::App& app, const Terminal& terminal, const JobPlace& place, int& exit_code);
void add_compare_command(CLI::App& app, const Terminal& terminal, const JobPlace& place, int& exit_code);
void add_coordinator_command(CLI::App& app, const JobPlace& place, int& exit_code);
void add_worker_command(CLI::App& app, const JobPlace& place, int& exit_code);
void add_invited_worker_command(CLI::App& app, int& exit_code);
void add_status_command(CLI::App& app, const Terminal& terminal, const JobPlace& place);
void add_leave_command(CLI::App& app, const JobPlace& place);
void add_scale_command(CLI::App& app, const JobPlace& place);
void add_guard_command(CLI::App& app, int& exit_code);
void add_join_command(CLI::App& app, const JobPlace& place, int& exit_code);
void add_eval_command(CLI::App& app, const Terminal& terminal);
void add_predict_command(CLI::App& app);
void add_info_command(CLI::App& app);
void add_plan_command(CLI::App& app, const Terminal& terminal, const JobPlace& place);
void add_models_command(CLI::App& app, const Terminal& terminal);
void add_data_command(CLI::App& app, const Terminal& terminal);
void add_doctor_command(CLI::App& app, const Terminal& terminal, int& exit_code);
/// Knows all commands of `app`, so it comes last.
void add_completion_command(CLI::App& app);

/// The values an option's type_name() offers: the words in small letters of "auto|none|FILE".
std::vector<std::string> offered_words(const std::string& type_name);

}  // namespace distbelief
