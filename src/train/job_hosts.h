#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "transport/address.h"

namespace distbelief {

/// One machine of a job, and how many of its processes run on it.
struct JobHost {
  std::string name;
  int slots = 1;
  friend bool operator==(const JobHost&, const JobHost&) = default;
};

/// "a:4,b,[fe80::7]:2". Throws InputError that quotes the part which is no host.
std::vector<JobHost> parse_hosts(const std::string& text);

/// Makes `hosts` the list itself, when it was a file's name, and `workers` the number of places; `workers` is 0 when
/// nobody said how many, and becomes `otherwise` without hosts. Throws InputError for what does not go together.
void settle_hosts(RunConfig& config, std::int64_t otherwise);

/// Where each rank runs over --hosts: servers are spread, one to a host in turn, and workers take the other places in
/// order. Over MPI, whose launcher places ranks, they all go through the hosts in order. Empty without hosts.
std::vector<JobHost> hosts_of_ranks(const RunConfig& config, bool over_mpi);

/// It is this machine that is called so.
bool is_this_machine(const JobHost& host);

/// What to execute here so that `command` runs on that host: with --rsh before it, unless it is this machine. Like ssh
/// --rsh may hand the words to a shell: they are quoted where one would take them apart.
std::vector<std::string> command_on(const JobHost& host, const RunConfig& config,
                                    const std::vector<std::string>& command);

/// How mpirun (of this name of an MPI) starts ranks on these hosts: options to come before the program. `environment`
/// is this process's; variables that MPI libraries or OpenMP read are handed on.
std::vector<std::string> mpi_host_options(std::string_view mpi, const RunConfig& config,
                                          const std::vector<std::string>& environment);

/// Where a coordinator on this machine listens.
struct CoordinatorPlace {
  Address listen;
  std::vector<std::string> hosts;  ///< under which other machines may reach it, the likeliest first; at least one
};
/// `several_hosts`: a foreign launcher started processes on other machines.
CoordinatorPlace coordinator_place(const RunConfig& config, bool several_hosts);

}  // namespace distbelief
