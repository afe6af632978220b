#pragma once

#include "base/json.h"
#include "train/trainer.h"

namespace distbelief {

/// Reports as JSON, for checkpoints and for the way from a worker to who shows the run. Reading throws
/// JsonError.
Json epoch_report_json(const EpochReport& report);
EpochReport epoch_report_from(const Json& value);

Json team_events_json(const std::vector<TeamEvent>& events);
std::vector<TeamEvent> team_events_from(const Json& value);

Json member_shares_json(const std::vector<MemberShare>& shares);
std::vector<MemberShare> member_shares_from(const Json& value);

Json run_summary_json(const RunSummary& summary);
RunSummary run_summary_from(const Json& value);

}  // namespace distbelief
