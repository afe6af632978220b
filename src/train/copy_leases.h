#pragma once

#include "exec/part_links.h"
#include "train/lease_source.h"

namespace distbelief {

/// The leases of a copy of the network that several workers hold: the first asks for all of them, and is the one who
/// says what became of them. All workers of the copy ask at the same points of their work. Throws ExchangeLost.
class CopyLeases : public LeaseSource {
 public:
  /// Both borrowed; `source` is used by the first only.
  CopyLeases(LeaseSource& source, PartLinks& links) : source_(source), links_(links) {}

  Member::LeaseAnswer request(std::int64_t samples, Clock::time_point deadline) override {
    Told told;
    if (links_.is_first()) {
      const Member::LeaseAnswer answer = source_.request(samples, deadline);
      if (const auto* lease = std::get_if<Lease>(&answer)) {
        told = {.kind = Told::Kind::lease, .lease = *lease};
      } else if (std::holds_alternative<Member::LeasesFinished>(answer)) {
        told.kind = Told::Kind::finished;
      }
    }
    links_.share_from_first(std::as_writable_bytes(std::span(&told, 1)));
    switch (told.kind) {
      case Told::Kind::lease:
        return told.lease;
      case Told::Kind::finished:
        return Member::LeasesFinished{};
      case Told::Kind::none:
        break;
    }
    return Member::NoLease{};
  }
  void complete(std::uint64_t lease) override {
    if (links_.is_first()) {
      source_.complete(lease);
    }
  }
  void give_back(std::uint64_t lease, std::uint64_t next_push) override {
    if (links_.is_first()) {
      source_.give_back(lease, next_push);
    }
  }

 private:
  struct Told {
    enum class Kind : std::uint64_t { none, lease, finished } kind = Kind::none;
    Lease lease = {};
  };
  static_assert(std::is_trivially_copyable_v<Lease>);

  LeaseSource& source_;
  PartLinks& links_;
};

}  // namespace distbelief
