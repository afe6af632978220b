#pragma once

#include <string>

#include "cluster/member.h"
#include "config/run_config.h"

namespace distbelief {

/// What this process says of itself, on this machine, when it joins the job with this configuration, and how it finds
/// the coordinator again. Throws InputError when a file of TLS cannot be used.
JoinRequest join_request(const RunConfig& config, const std::string& version, const std::string& token, Role role);

}  // namespace distbelief
