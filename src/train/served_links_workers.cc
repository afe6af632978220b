// Workers that come, and workers that are gone, as those hear of it who answer for parameters: who came is let in, and
// who is gone is fenced.
#include <algorithm>

#include "train/served_links.h"

namespace distbelief {

void ServedLinks::watch_for_newcomers() {
  if (!team_.newcomers) {
    return;
  }
  for (const ServedTeam::Newcomer& newcomer : team_.newcomers()) {
    const ServedTeam::LostWorker worker = {newcomer.incarnation, newcomer.rank};
    if (newcomer.is_worker) {
      late_workers_.push_back(worker);
      for (Shelf* shelf : answering_shelves()) {
        admit(*shelf, worker);
      }
    }
    bool linked = false;
    on_link_thread([&] {
      newcomer.link();
      linked = newcomer.rank.value < team_.fabric->size();  // or it was gone before
      for (Shelf* shelf : moving_) {
        if (shelf->port != nullptr && newcomer.is_worker && concerns(*shelf, newcomer.rank)) {
          shelf->port->add_client({.rank = newcomer.rank});
        }
        if (shelf->port != nullptr && newcomer.is_server) {
          shelf->port->add_client({.rank = newcomer.rank, .role = ClientRole::leader});
        }
      }
      if (newcomer.is_server && linked) {
        linked_.insert(newcomer.rank.value);
      }
    });
    if (newcomer.is_server && linked) {
      known_servers_.insert(newcomer.rank.value);
    }
  }
}

void ServedLinks::admit(Shelf& shelf, const ServedTeam::LostWorker& worker) {
  if (!team_.is_late(worker.rank) || !concerns(shelf, worker.rank)) {
    return;
  }
  std::uint64_t position = 0;
  (void)shelf.ordered->answer({.kind = RequestHead::Kind::admit, .incarnation = worker.incarnation}, {}, {}, position);
}

std::vector<ServedLinks::Shelf*> ServedLinks::answering_shelves() {
  std::vector<Shelf*> own;
  const std::scoped_lock lock(shelves_mutex_);
  for (const std::unique_ptr<Shelf>& shelf : shelves_) {
    if (shelf->open_port != nullptr) {
      own.push_back(shelf.get());
    }
  }
  return own;
}

std::vector<ServedLinks::Shelf*> ServedLinks::primary_shelves() {
  std::vector<Shelf*> own = answering_shelves();
  const std::scoped_lock lock(shelves_mutex_);
  for (const std::unique_ptr<Shelf>& shelf : shelves_) {
    if (shelf->hands_over) {
      own.push_back(shelf.get());
    }
  }
  return own;
}

bool ServedLinks::concerns(const Shelf& shelf, Rank worker) const {
  return part_of(shelf.number) == static_cast<std::size_t>(team_.part_of(worker));
}

std::uint64_t ServedLinks::fence(Shelf& shelf, std::uint64_t incarnation) {
  std::uint64_t position = 0;
  (void)shelf.ordered->answer({.kind = RequestHead::Kind::fence, .incarnation = incarnation}, {}, {}, position);
  if (ServerPort* port = shelf.open_port; port != nullptr) {
    port->server_changed();
  }
  return position;
}

/// The coordinator lets nothing move until all servers have confirmed, and each of them knows by then who held what
/// when the worker was lost: so every shelf is fenced by one who answers for it, or before anybody does again.
void ServedLinks::watch_for_lost_workers(const std::vector<ServedTeam::LostWorker>& lost_workers) {
  for (const ServedTeam::LostWorker& lost : lost_workers) {
    lost_workers_.push_back(lost);
    Fence& made = fences_.emplace_back(Fence{.incarnation = lost.incarnation});
    for (Shelf* shelf : primary_shelves()) {
      admit(*shelf, lost);  // it may have gone before it was there
      if (concerns(*shelf, lost.rank)) {
        made.positions.emplace_back(shelf, fence(*shelf, lost.incarnation));
      }
    }
    if (hooks_.lost) {
      hooks_.lost(lost.incarnation);
    }
    for (Shelf* shelf : answering_shelves()) {
      shelf->open_port.load()->server_changed();  // there may be something to do for who waits
    }
  }
  // What is told has to stay true, whoever of the two holders is lost.
  std::erase_if(fences_, [&](const Fence& fence) {
    const bool durable =
        std::ranges::all_of(fence.positions, [](const auto& at) { return at.first->ordered->durable(at.second); });
    if (durable && team_.fenced) {
      team_.fenced(fence.incarnation, open_leases());
    }
    return durable;
  });
}

}  // namespace distbelief
