#include "train/join_request.h"

#include <unistd.h>

#include "metrics/machine.h"
#include "train/job_store.h"
#include "train/job_tls.h"

namespace distbelief {

JoinRequest join_request(const RunConfig& config, const std::string& version, const std::string& token, Role role) {
  JoinRequest request;
  request.version = version;
  request.token = token;
  request.host = this_machine().host;
  request.pid = ::getpid();
  request.role = role;
  request.tls = tls_of(config);
  request.find_coordinator = coordinator_finder(config);
  return request;
}

}  // namespace distbelief
