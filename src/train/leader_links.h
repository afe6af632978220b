#pragma once

#include <span>
#include <string>
#include <vector>

#include "params/parameter_table.h"
#include "train/served_links.h"

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
  /// What the servers have now, one version of each block.
  Outcome fetch(std::span<float> values, Clock::time_point deadline);
  /// Part by part, each in the order of the servers.
  Report save(std::vector<std::string>& states, Clock::time_point deadline);
  Report restore(const std::vector<std::string>& states, Clock::time_point deadline);
  std::uint64_t traffic() const;

 private:
  /// Calls visit(place in the whole, place in the part, count) for all that a part has. Of what several parts have a
  /// copy of only the first is visited, unless `all`.
  template <typename Visit>
  void for_each_run_of(std::size_t part, bool all, const Visit& visit) const;
  std::size_t count() const { return parts_.empty() ? 1 : parts_.size(); }

  ServedLinks& links_;
  const ParameterTable& whole_;
  const std::vector<const ParameterTable*> parts_;
  std::vector<std::vector<bool>> first_;    ///< of each part's entries: no part before has it too
  std::vector<std::vector<float>> values_;  ///< of each part, as they were fetched last: what is old does not come again
};

}  // namespace distbelief
