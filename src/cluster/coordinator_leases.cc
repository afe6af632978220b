// Sample leases: who gets which, and what must happen before the dead's are given to others.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "cluster/coordinator_state.h"

namespace distbelief {

void CoordinatorState::on(Record& record, const control::LeasePlan& plan) {
  const bool has_servers = rules_.servers > 0 || rules_.workers_serve;
  const bool leads = has_servers ? may_serve(record) : record.info.rank == Rank{0};
  const bool recovers = recovery_.has_value();
  if (recovers && (recovery_->question == 0 || plan.answers() != recovery_->question)) {
    return;  // of a question that was asked again, or said to the coordinator before
  }
  if (!leads) {
    misbehaves(record, "a LeasePlan");
    return;
  }
  if (leases_) {
    return;  // a leader before brought it, and died before it could say so to the next
  }
  LeaseTable::Options options = {.samples_per_epoch = plan.samples_per_epoch(),
                                 .first_epoch = plan.first_epoch(),
                                 .epochs = plan.epochs(),
                                 .first_id = std::max(plan.first_lease(), first_of_term(term_)),
                                 .first_position = plan.first_position(),
                                 .warm_samples = plan.warm_samples()};
  for (const control::OpenLease& open : plan.returned()) {
    if (open.lease() >= options.first_id) {
      misbehaves(record, "a LeasePlan");
      return;
    }
    options.returned.push_back(from_wire(open));
  }
  if (recovers) {
    for (const auto& [worker, leases] : recovery_->held) {
      for (const Lease& lease : leases) {
        options.held.emplace_back(worker, lease);
      }
    }
    log(fmt::format("leases are known again: {} are held, {} are for others", options.held.size(),
                    options.returned.size()));
  }
  unsaved_ = unsaved_ || !leases_planned_;
  leases_planned_ = true;
  leases_.emplace(options);
  if (recovers) {
    const LeaseRecovery recovered = *std::exchange(recovery_, std::nullopt);
    for (const auto& [worker, done] : recovered.done) {
      (void)(done.returned() ? leases_->give_back(worker, done.lease(), done.next_push())
                             : leases_->complete(worker, done.lease()));
    }
  }
  serve_leases();
}

void CoordinatorState::on(Record& record, const control::LeaseRequest& request) {
  if (record.info.role != Role::worker) {
    misbehaves(record, "a LeaseRequest");
    return;
  }
  lease_requests_.push_back({record.info.id, request.samples()});
  serve_leases();
}

void CoordinatorState::on(Record& record, const control::LeaseDone& done) {
  if (recovery_) {
    recovery_->done.emplace_back(record.info.id, done);
    return;
  }
  if (leases_ && (done.returned() ? leases_->give_back(record.info.id, done.lease(), done.next_push())
                                  : leases_->complete(record.info.id, done.lease()))) {
    serve_leases();
    return;
  }
  control::Fenced fenced;
  fenced.set_term(term_);
  fenced.set_incarnation(record.info.incarnation);
  fenced.set_reason(fmt::format("lease {} is not with {}", done.lease(), describe(record.info)));
  tell(record, fenced);
}

void CoordinatorState::serve_leases() {
  for (auto at = lease_requests_.begin(); leases_ && at != lease_requests_.end();) {
    const WaitingRequest request = *at;
    const auto answer =
        is_for_another(request) ? LeaseTable::Wait{} : leases_->request(request.member, request.samples);
    if (std::holds_alternative<LeaseTable::Wait>(answer)) {
      ++at;  // what it waits for need not be what the next one does
      continue;
    }
    at = lease_requests_.erase(at);
    control::LeaseGrant grant;
    grant.set_low_water(leases_->low_water());
    if (const auto* lease = std::get_if<Lease>(&answer)) {
      grant.set_lease(lease->id);
      grant.set_epoch(lease->epoch);
      grant.set_first(lease->first);
      grant.set_count(lease->count);
      grant.set_next_push(lease->next_push);
      grant.set_begun(lease->begun);
    } else {
      grant.set_finished(true);
    }
    Record* record = roster_.find(request.member);
    check(record != nullptr && record->living(), "only the living ask for leases");
    tell(*record, grant);
    if (!rules_.rendezvous.empty()) {
      at = lease_requests_.begin();  // who asked before may have waited for just this
    }
  }
}

bool CoordinatorState::is_for_another(const WaitingRequest& request) const {
  if (rules_.rendezvous.empty() || leases_->has_back_for(request.member)) {
    return false;
  }
  const std::vector<const Record*> living = roster_.members();
  for (const ChaosScript::Rendezvous& place : rules_.rendezvous) {
    const auto worker = std::ranges::find_if(living, [&](const Record* member) {
      return member->info.role == Role::worker && member->info.rank.value == place.worker;
    });
    if (worker != living.end() && leases_->next_contains(place.share, request.samples)) {
      return lease_holder(**worker).info.id != request.member;  // of several the first, so that somebody may have it
    }
  }
  return false;
}

void CoordinatorState::fence(const Record& record) {
  if (recovery_) {
    recovery_->question = 0;  // what was answered may not be true any more
    recovery_->held.erase(record.info.id);
  }
  if (may_serve(record)) {
    confirm_no_fence(record);
  }
  if (record.info.role == Role::server) {
    return;
  }
  const std::uint64_t holder = lease_holder(record).info.id;
  std::erase_if(lease_requests_, [&](const WaitingRequest& request) { return request.member == holder; });
  if (leases_) {
    leases_->orphan(holder);
  }
  Fence& fence = fences_[record.info.incarnation];
  fence.member = holder;
  for (const Record* member : roster_.members()) {
    if (serves(*member)) {
      fence.unconfirmed.insert(member->info.id);
    }
  }
  settle_fence(record.info.incarnation);
}

void CoordinatorState::confirm_no_fence(const Record& server) {
  std::vector<std::uint64_t> waiting;
  for (auto& [incarnation, fence] : fences_) {
    fence.unconfirmed.erase(server.info.id);
    waiting.push_back(incarnation);
  }
  for (const std::uint64_t incarnation : waiting) {
    settle_fence(incarnation);
  }
}

void CoordinatorState::settle_fence(std::uint64_t incarnation) {
  const auto found = fences_.find(incarnation);
  if (found == fences_.end() || !found->second.unconfirmed.empty()) {
    return;
  }
  const std::uint64_t member = found->second.member;
  fences_.erase(found);
  const bool more = std::ranges::any_of(fences_, [&](const auto& entry) { return entry.second.member == member; });
  if (leases_ && !more) {  // of a copy of several workers each may have had pushes on their way
    leases_->release(member);
  }
  serve_leases();
}

const Record& CoordinatorState::lease_holder(const Record& worker) const {
  if (rules_.parts == 1) {
    return worker;
  }
  const int first = worker.info.rank.value / rules_.parts * rules_.parts;
  const Record* holder = &worker;
  for (const auto& [id, record] : roster_.records()) {
    if (record.info.role == Role::worker && record.info.rank.value == first) {
      holder = &record;  // of several that had the rank the last
    }
  }
  return *holder;
}

void CoordinatorState::on(Record& server, const control::FenceConfirmed& confirmed) {
  if (!may_serve(server)) {
    misbehaves(server, "FenceConfirmed");
    return;
  }
  const auto found = fences_.find(confirmed.incarnation());
  if (found == fences_.end() || found->second.unconfirmed.erase(server.info.id) == 0) {
    return;  // it joined after the death, and answers out of caution
  }
  std::map<std::uint64_t, std::uint64_t> next_pushes;
  for (const auto& lease : confirmed.leases()) {
    next_pushes[lease.lease()] = lease.next_push();
  }
  if (leases_ && !confirmed.holds_nothing()) {
    leases_->note_progress(found->second.member, next_pushes);
  }
  settle_fence(confirmed.incarnation());
}

}  // namespace distbelief
