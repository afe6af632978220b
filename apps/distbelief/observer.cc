#include "observer.h"

#include <fstream>

#include "base/error.h"
#include "cluster/job_file.h"
#include "train/job_store.h"
#include "train/job_tls.h"
#include "train/trainer.h"
#include "versions.h"

namespace distbelief {
namespace {

constexpr std::chrono::seconds kReachPatience{5};

}  // namespace

Address job_address(const std::string& job) { return Address::parse(job.starts_with("tcp:") ? job : "tcp:" + job); }

void add_job_arguments(CLI::App& command, JobArguments& arguments, const JobPlace& place) {
  arguments.token = place.token;
  command.add_option("job", arguments.job, "a run's folder, or the coordinator's HOST:PORT")
      ->type_name("RUN|HOST:PORT")
      ->required();
  command
      .add_option_function<std::string>(
          "--token-file",
          [&arguments](const std::string& file) {
            std::ifstream in(file);
            if (!(in >> arguments.token)) {
              throw InputError(fmt::format("--token-file {}: cannot read a token there", file));
            }
          },
          "with HOST:PORT: a file that holds the job's token; without it DISTBELIEF_TOKEN")
      ->type_name("FILE");
  command.add_option("--tls-cert", arguments.config.tls_cert, "of a job with TLS: a certificate of its authority")
      ->type_name("FILE");
  command.add_option("--tls-key", arguments.config.tls_key, "the certificate's private key")->type_name("FILE");
  command.add_option("--tls-ca", arguments.config.tls_ca, "the job's authority; RUN knows all three")
      ->type_name("FILE");
}

std::unique_ptr<Member> observe(JobArguments& arguments, std::function<void(const MemberEvent&)> on_event) {
  JoinRequest request;
  request.version = DISTBELIEF_VERSION;
  request.role = Role::observer;
  request.on_event = std::move(on_event);
  Address address;
  if (std::filesystem::is_directory(arguments.job)) {
    const RunConfig run = config_of_run(arguments.job);
    const JobFile job = running_job(arguments.job, run);
    address = job.address;
    request.token = job.token;
    request.find_coordinator = coordinator_finder(run);
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
      throw InputError(fmt::format("{}: an address needs the job's token too: --token-file FILE or DISTBELIEF_TOKEN",
                                   arguments.job));
    }
    address = job_address(arguments.job);
    request.token = arguments.token;
  }
  settle_tls(arguments.config);
  request.tls = tls_of(arguments.config);
  Member::Joined joined = Member::join(address, std::move(request), Clock::now() + kReachPatience);
  if (joined.refused) {
    throw InputError(fmt::format("{}: the job refused this process: {}", arguments.job, joined.reason));
  }
  if (joined.member == nullptr) {
    throw Error(fmt::format("{}: cannot reach the coordinator: {}", arguments.job, joined.reason));
  }
  return std::move(joined.member);
}

}  // namespace distbelief
