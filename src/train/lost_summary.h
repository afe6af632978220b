#pragma once

#include "train/trainer.h"

namespace distbelief {

/// Writes summary.json for a run of whose members nobody did it. `known` is what one of them told; or, when its model
/// is not said, only what became of them: then the folder's run.yaml and metrics.jsonl tell more, and what nobody knows
/// any more, as the audit, is null. Throws InputError when it cannot be written.
void write_lost_summary(RunSummary known);

}  // namespace distbelief
