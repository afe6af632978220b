#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/mapped_files.h"
#include "base/print.h"
#include "cluster/launcher.h"
#include "commands.h"
#include "help.h"
#include "versions.h"

namespace distbelief {
namespace {

constexpr char kTokenVariable[] = "DISTBELIEF_TOKEN";

Terminal this_terminal() {
  const char* term = std::getenv("TERM");
  const char* no_color = std::getenv("NO_COLOR");
  Terminal terminal;
  terminal.is_terminal = ::isatty(STDOUT_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
  terminal.color = terminal.is_terminal && (no_color == nullptr || *no_color == '\0');
  winsize size{};
  if (terminal.is_terminal && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    terminal.width = std::clamp<std::size_t>(size.ws_col, 40, 100);
  }
  return terminal;
}

std::uint64_t number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
}

JobPlace this_place() {
  JobPlace place;
  place.program = std::filesystem::read_symlink("/proc/self/exe").string();
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::string_view name = text.substr(0, text.find('='));
    if (name != kLaunchVariable && name != kLauncherPidVariable) {  // those are for this process alone
      place.environment.emplace_back(text);
    }
  }
  place.launch = number_in(kLaunchVariable);
  place.launcher_pid = static_cast<int>(number_in(kLauncherPidVariable));
  place.as_root = ::geteuid() == 0;
  if (const char* token = std::getenv(kTokenVariable); token != nullptr) {
    place.token = token;
  }
  place.mpi = detect_mpi_launcher([](std::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
  return place;
}

void add_commands(CLI::App& app, const Terminal& terminal, const JobPlace& place, int& exit_code) {
  app.set_help_flag("-h,--help", "show this help");
  app.set_version_flag("--version", "distbelief " DISTBELIEF_VERSION, "show the version");
  app.formatter(std::make_shared<Help>(terminal));
  app.require_subcommand(0, 1);
  add_train_command(app, terminal, place, exit_code);
  add_compare_command(app, terminal, place, exit_code);
  add_eval_command(app, terminal);
  add_predict_command(app);
  add_status_command(app, terminal, place);
  add_join_command(app, place, exit_code);
  add_leave_command(app, place);
  add_scale_command(app, place);
  add_guard_command(app, exit_code);
  add_info_command(app);
  add_plan_command(app, terminal, place);
  add_models_command(app, terminal);
  add_data_command(app, terminal);
  add_doctor_command(app, terminal, exit_code);
  add_completion_command(app);
  add_coordinator_command(app, place, exit_code);
  add_worker_command(app, place, exit_code);
  add_invited_worker_command(app, exit_code);
  app.footer(
      "Examples:\n"
      "  distbelief train --epochs 3 --out runs/first      train lenet on Fashion-MNIST\n"
      "  distbelief eval runs/first                        loss and accuracy, class by class\n"
      "  distbelief predict runs/first shirt.png           what is in the picture?\n"
      "\n"
      "'distbelief COMMAND --help' says more about a command.");
}

int complain(const std::string& message, int exit_code) {
  std::string line = message;
  std::replace_if(
      line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  std::fflush(stdout);  // what was said before comes before; if it cannot, the complaint is what matters
  print_error("{}\n", line);
  return exit_code;
}

/// Of these the words are not the work: they end as they would have, also when nobody could be told so.
constexpr std::string_view kWorking[] = {"train", "compare",     "join",   "leave",         "scale",
                                         "guard", "coordinator", "worker", "invited-worker"};

void parse_and_run(CLI::App& app, int argc, char** argv) {
  bool works = false;
  try {
    app.parse(argc, argv);
    const std::vector<CLI::App*> commands = app.get_subcommands();
    works = !commands.empty() && std::ranges::find(kWorking, commands.front()->get_name()) != std::end(kWorking);
    if (commands.empty()) {
      print_out("{}", app.help());
    }
  } catch (const CLI::CallForHelp&) {
    print_out("{}", app.help());  // of the command, if there is one
  } catch (const CLI::CallForVersion& version) {
    print_out("{}\n", version.what());
  }
  if (const std::string trouble = flush_printed(stdout); !works && !trouble.empty()) {
    throw FileError("standard output: " + trouble);
  }
}

int run(int argc, char** argv) {
  name_files_that_shrink();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error like a full disk
  const JobPlace place = this_place();
  Terminal terminal = this_terminal();
  const MpiLauncher::Kind launcher = place.mpi.kind;
  if (place.mpi.size > 1 || launcher == MpiLauncher::Kind::open_mpi || launcher == MpiLauncher::Kind::mpich) {
    // Launchers give their processes terminals, and may write to a file themselves.
    terminal.is_terminal = false;
    terminal.color = false;
  }
  int exit_code = 0;
  CLI::App app("Trains neural networks on one machine or many.", "distbelief");
  try {
    add_commands(app, terminal, place, exit_code);
    parse_and_run(app, argc, argv);
    return exit_code;
  } catch (const CLI::ParseError& error) {
    return complain(explain(app, error), 2);
  } catch (const Error& error) {
    return complain(fmt::format("distbelief: {}", error.what()), exit_code_of(error));
  } catch (const std::filesystem::filesystem_error& error) {
    return complain(fmt::format("distbelief: {}: {}", error.path1().string(), error.code().message()),
                    exit_code_of(error));
  } catch (const std::system_error& error) {  // as when the machine has no more threads
    return complain(fmt::format("distbelief: {}", error.what()), 1);
  } catch (const std::bad_alloc&) {
    return complain(
        "distbelief: out of memory; a smaller --batch needs less, and so does a part of the model: --partition 2", 1);
  } catch (const std::exception& error) {
    return complain(fmt::format("distbelief: internal error: {}", error.what()), 1);
  }
}

}  // namespace
}  // namespace distbelief

int main(int argc, char** argv) { return distbelief::run(argc, argv); }
