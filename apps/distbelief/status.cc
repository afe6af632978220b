#include <fstream>
#include <memory>
#include <thread>

#include "base/error.h"
#include "cluster/job_file.h"
#include "cluster/member.h"
#include "commands.h"
#include "signals.h"
#include "train/job_tls.h"
#include "train/trainer.h"

namespace distbelief {
namespace {

constexpr std::chrono::seconds kPatience{5};

struct StatusArguments {
  std::string job;
  std::string token;
  RunConfig config;  ///< of the run; for an address only what concerns TLS
  bool watch = false;
};

/// RUN, or HOST:PORT with a token.
std::unique_ptr<Member> observe(StatusArguments& arguments) {
  JoinRequest request;
  request.version = DISTBELIEF_VERSION;
  request.role = Role::observer;
  Address address;
  if (std::filesystem::is_directory(arguments.job)) {
    const JobFile job = read_job_file(arguments.job);
    address = job.address;
    request.token = job.token;
    const RunConfig run = config_of_run(arguments.job);
    for (std::string RunConfig::*file : {&RunConfig::tls_cert, &RunConfig::tls_key, &RunConfig::tls_ca}) {
      if ((arguments.config.*file).empty()) {
        arguments.config.*file = run.*file;
      }
    }
  } else {
    if (arguments.job.find(':') == std::string::npos) {
      throw InputError(fmt::format("{}: expected the folder of a run, or HOST:PORT", arguments.job));
    }
    if (arguments.token.empty()) {
      throw InputError(fmt::format("{}: an address needs the job's token too: --token-file FILE", arguments.job));
    }
    address = Address::parse("tcp:" + arguments.job);
    request.token = arguments.token;
  }
  settle_tls(arguments.config);
  request.tls = tls_of(arguments.config);
  Member::Joined joined = Member::join(address, std::move(request), Clock::now() + kPatience);
  if (joined.member == nullptr) {
    throw Error(fmt::format("{}: cannot reach the coordinator: {}", arguments.job, joined.reason));
  }
  return std::move(joined.member);
}

}  // namespace

void add_status_command(CLI::App& app, const Terminal& terminal) {
  CLI::App* command = app.add_subcommand("status", "Show who is in a running job and how far they are");
  command->group("Jobs");
  const auto arguments = std::make_shared<StatusArguments>();  // shared with the callback, which outlives this function
  command->add_option("job", arguments->job, "a run's folder, or the coordinator's HOST:PORT")
      ->type_name("RUN|HOST:PORT")
      ->required();
  command
      ->add_option_function<std::string>(
          "--token-file",
          [arguments](const std::string& file) {
            std::ifstream in(file);
            if (!(in >> arguments->token)) {
              throw InputError(fmt::format("--token-file {}: cannot read a token there", file));
            }
          },
          "with HOST:PORT: a file that holds the job's token")
      ->type_name("FILE");
  command->add_option("--tls-cert", arguments->config.tls_cert, "of a job with TLS: a certificate of its authority")
      ->type_name("FILE");
  command->add_option("--tls-key", arguments->config.tls_key, "the certificate's private key")->type_name("FILE");
  command->add_option("--tls-ca", arguments->config.tls_ca, "the job's authority; RUN knows all three")
      ->type_name("FILE");
  command->add_flag("--watch", arguments->watch, "show it again every second until the job ends");
  command->callback([arguments, &terminal] {
    const std::unique_ptr<Member> member = observe(*arguments);
    catch_stop_signals();
    do {
      const std::optional<JobStatus> status = member->request_status(Clock::now() + kPatience);
      if (!status) {
        if (arguments->watch) {
          break;  // the job has ended
        }
        throw Error(fmt::format("{}: the coordinator does not answer", arguments->job));
      }
      if (arguments->watch && terminal.is_terminal) {
        fmt::print("\033[H\033[2J");
      }
      fmt::print("{}", status_text(*status));
      std::fflush(stdout);
      for (int turn = 0; arguments->watch && turn < 10 && stop_signal() == 0; ++turn) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
    } while (arguments->watch && stop_signal() == 0);
    member->leave(true, "has seen enough", Clock::now() + kPatience);
  });
}

}  // namespace distbelief
