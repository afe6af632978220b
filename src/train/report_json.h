#pragma once

#include <nlohmann/json_fwd.hpp>

#include "train/trainer.h"

namespace distbelief {

/// Reports as JSON, for checkpoints and for the way from a worker to who shows the run. Reading throws
/// nlohmann::json::exception.
nlohmann::json epoch_report_json(const EpochReport& report);
EpochReport epoch_report_from(const nlohmann::json& value);

nlohmann::json team_events_json(const std::vector<TeamEvent>& events);
std::vector<TeamEvent> team_events_from(const nlohmann::json& value);

nlohmann::json run_summary_json(const RunSummary& summary);
RunSummary run_summary_from(const nlohmann::json& value);

}  // namespace distbelief
