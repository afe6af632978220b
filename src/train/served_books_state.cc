// How books are kept over a restart, and brought to where the servers stand.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "server/state_bytes.h"
#include "train/served_books.h"
#include "train/state_words.h"

namespace distbelief {
namespace {

constexpr std::int64_t kUnitsOfAGap = 8;  // that one lease takes

[[noreturn]] void fail(const std::string& complaint) {
  throw FileError("the books of the run are damaged: " + complaint);
}

void visit_head(StateVisitor& visitor, ServedBooks::Head& head) {
  visit_integer(visitor, "unit_samples", head.unit_samples);
  visit_integer(visitor, "samples_per_epoch", head.samples);
  visitor.number("seed", head.seed);
  visit_integer(visitor, "epochs_begun", head.epochs_begun);
}

}  // namespace

ServedBooks::Head ServedBooks::head_of(std::string_view saved, const std::string& file) {
  StateReader reader(saved, file);
  Head head;
  visit_head(reader, head);
  return head;
}

void ServedBooks::visit(StateVisitor& visitor) {
  visit_integer(visitor, "next_epoch", next_epoch_);
  visitor.number("units", news_.units);
  visitor.number("samples", news_.samples);
  for (std::uint64_t* count :
       {&closed_.leased, &closed_.applied, &closed_.dropped, &closed_.lost, &closed_.duplicated}) {
    visitor.number("closed", *count);
  }
  std::vector<std::uint64_t> histogram(staleness_.units.begin(), staleness_.units.end());
  visitor.numbers("staleness", histogram);
  std::copy_n(histogram.begin(), std::min(histogram.size(), staleness_.units.size()), staleness_.units.begin());
  visitor.real("staleness_sum", staleness_.sum);
  visitor.number("staleness_count", staleness_.count);
  visitor.number("staleness_most", staleness_.most);

  std::uint64_t count = unevaluated_.size();
  visitor.number("unevaluated", count);
  if (next_epoch_ < 0 || next_epoch_ > plan_.epochs || count > static_cast<std::uint64_t>(next_epoch_)) {
    fail(fmt::format("{} epochs closed of {}", next_epoch_, plan_.epochs));
  }
  unevaluated_.resize(count);
  for (ClosedEpoch& closed : unevaluated_) {
    visit_integer(visitor, "epoch", closed.epoch);
    visit_sums(visitor, closed.sums);
  }
  std::vector<std::uint64_t> reported;
  for (const auto& [lease, unit] : reported_) {
    reported.insert(reported.end(), {lease, static_cast<std::uint64_t>(unit.epoch), unit.next_unit});
  }
  visitor.numbers("reported", reported);
  reported_.clear();
  for (std::size_t i = 0; i + 3 <= reported.size(); i += 3) {
    reported_[reported[i]] = {static_cast<std::int64_t>(reported[i + 1]), reported[i + 2]};
  }
  std::vector<std::uint64_t> open;
  for (const auto& [number, epoch] : open_) {
    open.push_back(static_cast<std::uint64_t>(number));
  }
  visitor.numbers("open", open);
  for (const std::uint64_t number : open) {
    if (number < static_cast<std::uint64_t>(next_epoch_) || number >= static_cast<std::uint64_t>(plan_.epochs)) {
      fail(fmt::format("epoch {} is open", number));
    }
    Epoch& epoch = epoch_locked(static_cast<std::int64_t>(number));
    visit_sums(visitor, epoch.sums);
    std::string ledger = epoch.ledger.save();
    visit_text(visitor, "ledger", ledger);
    epoch.ledger.restore(ledger, "the books of the run");
  }
}

std::string ServedBooks::save() {
  const std::scoped_lock lock(mutex_);
  StateWriter writer;
  Head head = {.unit_samples = plan_.unit_samples,
               .samples = static_cast<std::int64_t>(sampler_.samples()),
               .seed = plan_.seed,
               .epochs_begun = open_.empty() ? next_epoch_ : open_.rbegin()->first + 1};
  visit_head(writer, head);
  visit(writer);
  return writer.take();
}

void ServedBooks::restore(std::string_view saved, const std::string& file) {
  const std::scoped_lock lock(mutex_);
  StateReader reader(saved, file);
  Head head;
  visit_head(reader, head);
  if (head.samples != static_cast<std::int64_t>(sampler_.samples()) || head.seed != plan_.seed) {
    throw InputError(fmt::format("{}: the run is of {} samples in the order of --seed {}, not of {} in that of {}",
                                 file, head.samples, head.seed, sampler_.samples(), plan_.seed));
  }
  if (head.epochs_begun > plan_.epochs) {
    throw InputError(fmt::format("{}: epoch {} has begun there: expected --epochs {} or more", file, head.epochs_begun,
                                 head.epochs_begun));
  }
  if (const std::int64_t unit = head.unit_samples; unit != plan_.unit_samples) {
    throw InputError(
        fmt::format("{}: pushes there are of {} samples, not of {}: expected the same --batch times --n-push", file,
                    unit, plan_.unit_samples));
  }
  open_.clear();  // these may have been a copy before, when other epochs were open
  visit(reader);
  reader.expect_end();
  news_.closed = unevaluated_;
}

std::string ServedBooks::copy() {
  std::string books = save();
  StateWriter writer;
  visit_text(writer, "books", books);
  const std::scoped_lock lock(mutex_);
  std::vector<std::uint64_t> left(left_.begin(), left_.end());
  writer.numbers("left", left);
  return writer.take();
}

void ServedBooks::become(std::string_view copy) {
  const std::string source = "the books of who leads";
  StateReader reader(copy, source);
  std::string books;
  visit_text(reader, "books", books);
  std::vector<std::uint64_t> left;
  reader.numbers("left", left);
  reader.expect_end();
  restore(books, source);
  const std::scoped_lock lock(mutex_);
  left_ = {left.begin(), left.end()};
}

LeaseTable::Options ServedBooks::go_on(const std::vector<SavedLeases>& servers, const std::vector<Lease>& held,
                                       std::uint64_t first_lease) {
  const std::scoped_lock lock(mutex_);
  std::map<std::uint64_t, Lease> leases;
  for (const SavedLeases& server : servers) {
    for (const SavedLease& lease : server.leases) {
      const auto samples = static_cast<std::int64_t>(sampler_.samples());
      if (lease.samples.epoch < 0 || lease.samples.epoch >= plan_.epochs || lease.samples.count < 1 ||
          lease.samples.count > samples || lease.samples.first < 0 ||
          lease.samples.first > samples - lease.samples.count) {
        fail(fmt::format("lease {} is of samples that there are not", lease.id));
      }
      leases[lease.id] = {.id = lease.id,
                          .epoch = lease.samples.epoch,
                          .first = lease.samples.first,
                          .count = lease.samples.count,
                          .next_push = SavedLease::kDone};
    }
  }
  for (const Lease& lease : held) {
    leases.erase(lease.id);
  }
  for (const SavedLeases& server : servers) {
    std::map<std::uint64_t, std::uint64_t> here;
    for (const SavedLease& lease : server.leases) {
      here[lease.id] = lease.next_push;
    }
    for (auto& [id, lease] : leases) {
      const auto found = here.find(id);
      const std::uint64_t next = found != here.end() ? found->second : id < server.low_water ? SavedLease::kDone : 0;
      lease.next_push = std::min(lease.next_push, next);
    }
  }
  LeaseTable::Options plan = {.samples_per_epoch = static_cast<std::int64_t>(sampler_.samples()),
                              .epochs = plan_.epochs,
                              .first_id = first_lease};
  for (auto& [id, lease] : leases) {
    plan.first_id = std::max(plan.first_id, id + 1);
    if (lease.epoch < next_epoch_) {
      continue;
    }
    const auto units = static_cast<std::uint64_t>((lease.count + plan_.unit_samples - 1) / plan_.unit_samples);
    lease.next_push = std::min(lease.next_push, units);
    Reported& reported = reported_[id];
    reported.epoch = lease.epoch;
    if (reported.next_unit < lease.next_push) {
      const std::int64_t begin = static_cast<std::int64_t>(reported.next_unit) * plan_.unit_samples;
      const std::int64_t end = std::min(static_cast<std::int64_t>(lease.next_push) * plan_.unit_samples, lease.count);
      apply_locked({.epoch = lease.epoch, .first = lease.first + begin, .count = end - begin});
      news_.units += lease.next_push - reported.next_unit;
      reported.next_unit = lease.next_push;
    }
    if (lease.next_push < units) {
      plan.returned.push_back(lease);
    }
  }
  for (const auto& [id, reported] : reported_) {
    plan.first_id = std::max(plan.first_id, id + 1);
  }
  close_finished_locked();
  lease_gaps_locked(plan, held);
  return plan;
}

RunProgress ServedBooks::progress() const {
  const std::scoped_lock lock(mutex_);
  RunProgress progress = {.closed = closed_};
  for (const ClosedEpoch& closed : unevaluated_) {
    progress.epochs.push_back({.number = static_cast<std::uint64_t>(closed.epoch), .sums = closed.sums});
  }
  for (const auto& [number, epoch] : open_) {
    progress.epochs.push_back({static_cast<std::uint64_t>(number), epoch->ledger.save_epoch(), epoch->sums});
  }
  return progress;
}

LeaseTable::Options ServedBooks::begin_at(const RunProgress& progress, std::uint64_t units) {
  {
    const std::scoped_lock lock(mutex_);
    closed_ = progress.closed;
    std::uint64_t applied = 0;
    for (const EpochProgress& begun : progress.epochs) {
      const auto number = static_cast<std::int64_t>(begun.number);
      if (begun.ledger.empty()) {
        unevaluated_.push_back({.epoch = number, .sums = begun.sums});
        next_epoch_ = number + 1;
        continue;
      }
      Epoch& epoch = epoch_locked(number);
      epoch.ledger.restore(begun.ledger, "the books of the run");
      epoch.ledger.reopen_dropped();
      epoch.sums = begun.sums;
      applied += epoch.ledger.total().applied;
    }
    news_.closed = unevaluated_;
    news_.units = units;
    news_.samples = static_cast<std::uint64_t>(next_epoch_) * sampler_.samples() + applied;
  }
  return go_on({});
}

void ServedBooks::lease_gaps_locked(LeaseTable::Options& plan, const std::vector<Lease>& held) {
  const auto samples = static_cast<std::int64_t>(sampler_.samples());
  plan.first_epoch = next_epoch_;
  std::int64_t last = next_epoch_ - 1;
  for (const auto& [number, epoch] : open_) {
    last = std::max(last, number);
  }
  std::vector<Lease> known = plan.returned;
  known.insert(known.end(), held.begin(), held.end());
  for (const Lease& lease : known) {
    last = std::max(last, lease.epoch);
  }
  std::vector<bool> taken(static_cast<std::size_t>(samples));
  for (std::int64_t number = next_epoch_; number <= last; ++number) {
    const std::span<const std::uint64_t> ids = ids_of_locked({.epoch = number, .first = 0, .count = samples});
    const auto found = open_.find(number);
    for (std::size_t at = 0; at < taken.size(); ++at) {
      taken[at] = found != open_.end() && found->second->ledger.has_applied(ids[at]);
    }
    for (const Lease& lease : known) {
      if (lease.epoch == number) {
        std::fill_n(taken.begin() + lease.first, lease.count, true);
      }
    }
    std::int64_t end = samples;
    if (number == last) {
      while (end > 0 && !taken[static_cast<std::size_t>(end - 1)]) {
        --end;
      }
      plan.first_epoch = end == samples ? last + 1 : last;
      plan.first_position = end == samples ? 0 : end;
    }
    for (std::int64_t at = 0; at < end;) {
      std::int64_t gap_end = at;
      const std::int64_t most = std::min(end, at + kUnitsOfAGap * plan_.unit_samples);
      while (gap_end < most && !taken[static_cast<std::size_t>(gap_end)]) {
        ++gap_end;
      }
      if (gap_end > at) {
        plan.returned.push_back({.id = plan.first_id++, .epoch = number, .first = at, .count = gap_end - at});
      }
      at = std::max(gap_end, at + 1);
    }
  }
}

}  // namespace distbelief
