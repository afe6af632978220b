#pragma once

#include <string>
#include <vector>

#include "train/trainer.h"

namespace distbelief {

/// What must be true after a run in which --chaos let things go wrong.
struct ChaosVerdict {
  std::vector<std::string> kept;    ///< "4 of 4 events happened"
  std::vector<std::string> broken;  ///< "2 samples are lost"

  bool passed() const { return broken.empty(); }
  /// One line.
  std::string text() const;
};

/// Looks at how the run ended, at its audit, at its model and at what is written down of the events. The run has ended
/// by itself.
ChaosVerdict judge_chaos(const RunConfig& config, const RunSummary& summary);

/// Adds the verdict to the summary.json of the run. Throws FileError.
void write_verdict(const ChaosVerdict& verdict, const std::filesystem::path& folder);

}  // namespace distbelief
