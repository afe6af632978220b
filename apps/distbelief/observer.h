#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>

#include "cluster/member.h"
#include "commands.h"
#include "config/run_config.h"

namespace distbelief {

/// A running job, as people say which one they mean.
struct JobArguments {
  std::string job;    ///< a run's folder, or HOST:PORT
  std::string token;  ///< with HOST:PORT
  RunConfig config;   ///< of the run; for an address only what concerns TLS
};

/// HOST:PORT, as people say it, or tcp:HOST:PORT, as it is written in job.json. Throws InputError.
Address job_address(const std::string& job);

/// `arguments` lives as long as the command.
void add_job_arguments(CLI::App& command, JobArguments& arguments, const JobPlace& place);

/// Joins as one who looks on and may order. Throws InputError when it is not said which job, or that refuses it, Error
/// when it cannot be reached. `on_event`: see JoinRequest.
std::unique_ptr<Member> observe(JobArguments& arguments, std::function<void(const MemberEvent&)> on_event = {});

}  // namespace distbelief
