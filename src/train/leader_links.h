#pragma once

#include <span>
#include <string>
#include <vector>

#include "params/parameter_table.h"
#include "train/part_runs.h"
#include "train/served_links.h"
#include "train/whole_state.h"

namespace distbelief {

/// What the leader of a run says to all servers, about all parts of the network. Values are those of the whole network,
/// wherever it is cut. Each function waits for the answers. One thread.
class LeaderLinks {
 public:
  /// All borrowed. `parts` are the tables of the parts; none: there is one, the whole.
  LeaderLinks(ServedLinks& links, const ParameterTable& whole, std::vector<const ParameterTable*> parts);

  using Report = ServerClient::PushReport;
  /// See ServerClient.
  Report order(RequestHead::Kind kind, float scale, Clock::time_point deadline);
  Report set_values(std::span<const float> values, Clock::time_point deadline);
  /// Before anybody pushes: servers begin where a run of any kind stood. `rule` is that of the servers, and begins anew
  /// where the state knows nothing of it; blocks count so many pushes.
  Report set_state(const WholeState& state, const UpdateRule& rule, std::uint64_t pushes, Clock::time_point deadline);
  /// What the servers have now, one version of each block.
  Outcome fetch(std::span<float> values, Clock::time_point deadline);
  /// Part by part, each in the order of the servers.
  Report save(std::vector<std::string>& states, Clock::time_point deadline);
  Report restore(const std::vector<std::string>& states, Clock::time_point deadline);
  ServerClient::Traffic traffic() const;
  /// The ways to the servers of each part.
  std::vector<ServerClient*> clients() const;

 private:
  ServedLinks& links_;
  const bool is_cut_;
  const PartRuns parts_;
  std::vector<std::vector<float>>
      values_;  ///< of each part, as they were fetched last: what is old does not come again
};

}  // namespace distbelief
