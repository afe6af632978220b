#include <unistd.h>

#include <memory>

#include "base/error.h"
#include "base/print.h"
#include "cluster/store_url.h"
#include "commands.h"
#include "signals.h"
#include "train/job_coordinator.h"
#include "train/job_tls.h"
#include "versions.h"

namespace distbelief {
namespace {

struct GuardArguments {
  std::string store;
  RunConfig place;
};

}  // namespace

void add_guard_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("guard", "Stand by, and take over when a job's coordinator or its machine dies");
  command->group("Jobs");
  const auto arguments = std::make_shared<GuardArguments>();  // shared with the callback, which outlives this function
  command->add_option("store", arguments->store, "the job's --store")->type_name("etcd://HOST:PORT/NAME")->required();
  command->add_option("--listen", arguments->place.listen, "where to listen as the coordinator; default: all addresses")
      ->type_name("ADDRESS[:PORT]");
  command->add_option("--advertise", arguments->place.advertise, "this machine's address for the others")
      ->type_name("ADDRESS");
  command->add_option("--tls-cert", arguments->place.tls_cert, "of a job with TLS, or for etcds://: a certificate")
      ->type_name("FILE");
  command->add_option("--tls-key", arguments->place.tls_key, "the certificate's private key")->type_name("FILE");
  command->add_option("--tls-ca", arguments->place.tls_ca, "the authority; default: the files that the job has")
      ->type_name("FILE");
  command->footer(
      "Runs on another machine than the job's coordinator, before or while the job runs, until it has ended. The\n"
      "coordinator tells etcd every second that it lives; 5 s after the last time a guard takes its place with what "
      "it\n"
      "had written down, and the workers find it there and go on. Workers on the machine that died are lost; the "
      "others\n"
      "need the run's folder on a file system that they share. docs/reliability.md says what exactly is promised.\n"
      "\n"
      "Examples:\n"
      "  distbelief train --hosts alpha:4,beta:4 --algorithm allreduce --store etcd://gamma:2379/team --out runs/team\n"
      "  distbelief guard etcd://gamma:2379/team            on beta or gamma, at any time");
  command->callback([arguments, &exit_code] {
    const StoreUrl store = StoreUrl::parse(arguments->store);
    settle_tls(arguments->place);
    catch_stop_signals();
    const JobResult result = guard_job({.store = store.text(),
                                        .version = DISTBELIEF_VERSION,
                                        .place = arguments->place,
                                        .log =
                                            [](const std::string& line) {
                                              print_out("{}\n", line);
                                              std::fflush(stdout);
                                            },
                                        .stop_requested = [] { return stop_signal() != 0; }});
    print_out("{}\n", result.reason);
    exit_code = result.succeeded || stop_signal() != 0 ? 0 : 1;
  });
}

}  // namespace distbelief
