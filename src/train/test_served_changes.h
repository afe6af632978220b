#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "train/test_served_job.h"

namespace distbelief {

/// Pushes units of ones of a lease, from the first to the last, and fetches now and then. How many were acknowledged:
/// all, unless the process is killed.
inline std::uint64_t push_lease(ServedTestJob& job, int worker, std::uint64_t lease, std::uint64_t first,
                                std::uint64_t last) {
  ServerClient& client = job.links(worker).worker();
  const std::vector<float> ones(job.floats(), 1.0F);
  std::vector<float> values(job.floats());
  const std::span<const float> part = ones;
  for (std::uint64_t seq = first; seq < last; ++seq) {
    if (seq % 3 == 0) {
      client.begin_fetch();
    }
    client.add({&part, 1});
    const bool sent = client.push({.id = {lease, seq}, .wants_values = seq % 2 == 0}, soon()).outcome.ok();
    if (!sent || !client.wait_pushed(soon()).outcome.ok()) {
      return seq;
    }
    if (client.fetching()) {
      if (!client.wait_fetched(soon()).ok()) {
        return seq + 1;
      }
      client.take(values);
    }
  }
  return last;
}

/// What is to be done again of the lease of a worker that is lost: of all that the others have told, the least.
inline std::uint64_t next_of_lease(ServedTestJob& job, const std::set<int>& living, int lost) {
  std::uint64_t next = ~std::uint64_t{0};
  for (const int process : living) {
    EXPECT_TRUE(wait_until([&] { return job.fenced(process, lost).has_value(); }));
    std::uint64_t told = 0;
    const std::vector<PushId> leases = job.fenced(process, lost).value_or(std::vector<PushId>());
    for (const PushId& open : leases) {
      told = open.lease == static_cast<std::uint64_t>(lost + 1) ? open.seq : told;
    }
    next = std::min(next, told);
  }
  return next;
}

inline bool wait_until_settled(ServedTestJob& job, const std::vector<int>& servers) {
  const bool settled = wait_until([&] {
    return std::ranges::all_of(servers,
                               [&](int server) { return job.table().lives(server) && job.server(server).settled(); });
  });
  const Ownership table = job.table();
  for (int shelf = 0; !settled && shelf < table.shelves(); ++shelf) {
    const Ownership::Holders& holders = table.of(shelf);
    ADD_FAILURE() << "shelf " << shelf << ": " << holders.primary << " " << holders.backup << " " << holders.coming
                  << ", step " << static_cast<int>(table.step(shelf));
  }
  return settled;
}

inline int shelves_with(const Ownership& table, int server) {
  int shelves = 0;
  for (int shelf = 0; shelf < table.shelves(); ++shelf) {
    shelves += table.of(shelf).primary == server ? 1 : 0;
  }
  return shelves;
}

/// What the threads do that lead, of these servers: whoever leads keeps a note with its number, and gives the lead up
/// when it is to.
class TestLeaders {
 public:
  explicit TestLeaders(ServedTestJob& job) : job_(job) {}
  void look_after(const std::vector<int>& servers) {
    for (const int server : servers) {
      ServedLinks& links = job_.server(server);
      if (leader_ != server && links.leads()) {
        EXPECT_TRUE(leader_ == Ownership::kNobody || std::ranges::count(servers, leader_) == 0)
            << server << " leads, and so does " << leader_;
        found_ = links.note();
        leader_ = server;
        links.begin_leading();
        links.keep_note("of " + std::to_string(server));
      }
      if (leader_ == server && links.is_to_give_up_lead()) {
        links.keep_note("the last of " + std::to_string(server));
        links.give_up_lead();
        leader_ = Ownership::kNobody;
      }
    }
  }
  int leader() const { return leader_; }
  /// The note that the leader found.
  const std::string& found() const { return found_; }

 private:
  ServedTestJob& job_;
  int leader_ = Ownership::kNobody;
  std::string found_;
};

}  // namespace distbelief
