#include "train/team_run.h"

#include <memory>
#include <utility>
#include <vector>

namespace distbelief {

TeamResult train_in_team(const Team& team, const std::filesystem::path& folder, bool resumes, const RunConfig& config,
                         RunObserver& observer, const std::function<bool()>& stop_requested,
                         std::shared_ptr<OpenedRun> opened) {
  Team now = team;
  RunConfig current = config;
  std::optional<RollBack> back;
  std::vector<std::unique_ptr<Group>> groups;
  for (;;) {
    std::optional<RollBack> next;
    {
      Trainer trainer = Trainer::in_team(now, folder, resumes, current, observer, std::exchange(opened, nullptr));
      const RunSummary summary = trainer.run(stop_requested);
      next = trainer.roll_back();
      if (!next) {
        return {summary, trainer.leads()};
      }
    }  // its memory is free before another takes its place
    back = std::move(next);
    groups.push_back(std::make_unique<Group>(team.group->fabric(), back->team.members, back->team.epoch));
    now.group = groups.back().get();
    now.went_back = &*back;
    now.late = false;  // it has a place as all others
    current = back->config;
    resumes = true;
  }
}

}  // namespace distbelief
