// Who leads, of the servers: whoever answers for the first shelf, as it or its backup has the books. What it keeps for
// the next one, how it gives the lead up, and what it says of leases.
#include "train/served_links.h"

namespace distbelief {

bool ServedLinks::leads() {
  // Asked in this order: when it is kept again because another leads, the table says so.
  if (!replicated() || lead_ == Lead::given_up || team_.routes->now().leader() != team_.number()) {
    return false;
  }
  const Shelf* first = find_shelf(0);
  return first != nullptr && first->open_port != nullptr;
}

void ServedLinks::begin_leading() {
  if (areas_.front()->leader != nullptr) {
    return;  // it has led before
  }
  on_link_thread([this] {
    for (std::size_t part = 0; part < areas_.size(); ++part) {
      areas_[part]->leader = client_of(part, ClientRole::leader);
      clients_.push_back(areas_[part]->leader.get());
    }
  });
}

void ServedLinks::give_up_lead() {
  Lead wanted = Lead::wanted;
  (void)lead_.compare_exchange_strong(wanted, Lead::given_up);  // or it leads on, as somebody was lost
}

bool ServedLinks::may_hand_over(const Shelf& shelf) {
  if (shelf.number != 0) {
    return true;
  }
  Lead kept = Lead::kept;
  (void)lead_.compare_exchange_strong(kept, Lead::wanted);
  return lead_ == Lead::given_up;
}

std::uint64_t ServedLinks::tell_backup(RequestHead::Kind kind, const std::string& body) {
  std::uint64_t position = 0;
  if (replicated()) {
    (void)find_shelf(0)->ordered->answer({.kind = kind, .body_bytes = body.size()}, std::as_bytes(std::span(body)),
                                            {}, position);
  }
  return position;
}

void ServedLinks::keep_beginning(const std::string& books, const std::string& words) {
  (void)tell_backup(RequestHead::Kind::books, books);
  const std::uint64_t position = tell_backup(RequestHead::Kind::note, words);
  if (replicated()) {
    (void)find_shelf(0)->ordered->wait_until_durable(position, Clock::now() + team_.patience);
  }
}

std::string ServedLinks::note() { return find_shelf(0)->ordered->note(); }

void ServedLinks::answer(const LeaseQuestion& question) {
  if (question.for_plan) {
    const bool leads = replicated() ? team_.routes->now().leader() == team_.number() : team_.leads();
    if (hooks_.plan && leads) {
      team_.plan_leases(hooks_.plan(question), question.number);
    }
    return;
  }
  std::vector<LeaseReport> reports;
  {
    const std::scoped_lock lock(shelves_mutex_);
    for (const std::unique_ptr<Shelf>& shelf : shelves_) {
      if (shelf->ordered == nullptr || !shelf->ordered->whole()) {
        continue;  // as in open_leases()
      }
      const SavedLeases known = shelf->server->leases();
      LeaseReport& report = reports.emplace_back();
      report.low_water = known.low_water;
      for (const SavedLease& lease : known.leases) {
        report.leases.push_back({.id = lease.id,
                                 .epoch = lease.samples.epoch,
                                 .first = lease.samples.first,
                                 .count = lease.samples.count,
                                 .next_push = lease.next_push});
      }
    }
  }
  team_.report_leases(reports, question.number);
}

}  // namespace distbelief
