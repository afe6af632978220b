#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/sampler.h"
#include "graph/loss.h"
#include "metrics/counters.h"

namespace distbelief {

/// An epoch of which some samples are done, by whichever algorithm.
struct EpochProgress {
  std::uint64_t number = 0;
  std::string ledger = {};  ///< SampleLedger::save_epoch(); empty: all is done, and counted with the closed ones
  LossSums sums = {};       ///< of what is done
};

/// Which samples of which epochs are done: what a run that goes on with another algorithm must know of its samples.
struct RunProgress {
  SampleAudit closed = {};                 ///< of epochs that are over
  std::vector<EpochProgress> epochs = {};  ///< that have begun and are not evaluated yet, ascending
};

/// As bytes, and back. Throws FileError, naming `file`.
std::string epochs_text(std::vector<EpochProgress> epochs);
std::vector<EpochProgress> epochs_from(std::string_view text, const std::string& file);

/// The positions of an epoch, in the sampler's order, whose samples are applied or dropped.
std::vector<PositionRun> settled_positions(const Sampler& sampler, std::uint64_t epoch, const SampleLedger& ledger);

/// Has the sampler begin this epoch with what is done of it.
void put_first(Sampler& sampler, const EpochProgress& epoch);

}  // namespace distbelief
