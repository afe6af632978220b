#include "train/run_progress.h"

#include <algorithm>

#include "server/state_bytes.h"
#include "train/state_words.h"

namespace distbelief {
namespace {

constexpr std::size_t kPositionsAtOnce = std::size_t{1} << 16;

void visit_epoch(StateVisitor& visitor, EpochProgress& epoch) {
  visitor.number("epoch", epoch.number);
  visit_sums(visitor, epoch.sums);
  visit_text(visitor, "ledger", epoch.ledger);
}

}  // namespace

std::string epochs_text(std::vector<EpochProgress> epochs) {
  StateWriter writer;
  std::uint64_t count = epochs.size();
  writer.number("epochs", count);
  for (EpochProgress& epoch : epochs) {
    visit_epoch(writer, epoch);
  }
  return writer.take();
}

std::vector<EpochProgress> epochs_from(std::string_view text, const std::string& file) {
  StateReader reader(text, file);
  std::uint64_t count = 0;
  reader.number("epochs", count);
  std::vector<EpochProgress> epochs;
  for (; count > 0; --count) {
    visit_epoch(reader, epochs.emplace_back());
  }
  reader.expect_end();
  return epochs;
}

std::vector<PositionRun> settled_positions(const Sampler& sampler, std::uint64_t epoch, const SampleLedger& ledger) {
  std::vector<PositionRun> runs;
  std::vector<std::uint64_t> ids;
  for (std::uint64_t first = 0; first < sampler.samples(); first += ids.size()) {
    ids.resize(std::min<std::uint64_t>(kPositionsAtOnce, sampler.samples() - first));
    sampler.fill(epoch, first, ids);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (!ledger.is_settled(ids[i])) {
        continue;
      }
      if (const std::uint64_t position = first + i;
          !runs.empty() && runs.back().first + runs.back().count == position) {
        ++runs.back().count;
      } else {
        runs.push_back({position, 1});
      }
    }
  }
  return runs;
}

void put_first(Sampler& sampler, const EpochProgress& epoch) {
  if (epoch.ledger.empty()) {
    sampler.put_first(epoch.number, {{0, sampler.samples()}});
    return;
  }
  SampleLedger ledger(sampler.samples());
  ledger.restore(epoch.ledger, "the checkpoint");
  sampler.put_first(epoch.number, settled_positions(sampler, epoch.number, ledger));
}

}  // namespace distbelief
