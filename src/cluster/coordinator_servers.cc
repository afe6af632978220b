// What became of the servers of a job: told to all alike, so that all agree who holds which parameters. Who holds what
// the servers work out by themselves; the coordinator puts in order what they say to have done, and lets nothing count
// that cannot be true any more.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cluster/coordinator_state.h"

namespace distbelief {

using ServerEvent = control::ServerHistory::Event;

ServerEvent& CoordinatorState::note_server(ServerEvent::What what, const Record& server) {
  unsaved_ = true;
  server_history_.set_term(term_);
  ServerEvent& event = *server_history_.add_events();
  event.set_what(what);
  event.set_rank(server.info.rank.value);
  event.set_backup(-1);
  if (what == ServerEvent::BEGAN || what == ServerEvent::JOINED) {
    event.set_host(server.info.host);
  }
  return event;
}

void CoordinatorState::tell_server_history() {
  if (server_history_.events_size() == 0) {
    return;
  }
  const auto shared = std::make_shared<const ControlMessage>(server_history_);
  for (auto& [id, record] : roster_.records()) {
    if (record.living() && record.takes_part()) {
      tell(record, shared);
    }
  }
}

bool CoordinatorState::may_serve(const Record& record) const {
  return record.info.role == Role::server || (rules_.workers_serve && record.info.role == Role::worker);
}

bool CoordinatorState::serves(const Record& record) const {
  return may_serve(record) && std::ranges::any_of(server_history_.events(), [&](const ServerEvent& event) {
           return event.rank() == record.info.rank.value &&
                  (event.what() == ServerEvent::BEGAN || event.what() == ServerEvent::JOINED);
         });
}

std::vector<const Record*> CoordinatorState::staying_servers() const {
  std::vector<const Record*> servers = roster_.members();
  std::erase_if(servers, [&](const Record* member) { return !serves(*member) || member->leaving; });
  return servers;
}

void CoordinatorState::keep_the_last_servers() {
  if (!staying_servers().empty()) {
    return;
  }
  for (auto& [id, record] : roster_.records()) {
    if (record.living() && serves(record)) {
      record.leaving = false;
    }
  }
}

void CoordinatorState::on(Record& server, const control::ServerNews& news) {
  if (!may_serve(server)) {
    misbehaves(server, "ServerNews");
    return;
  }
  const auto& events = server_history_.events();
  const auto changes = std::ranges::count_if(events, [](const ServerEvent& event) {
    return event.what() != ServerEvent::BEGAN && event.what() != ServerEvent::MOVED;
  });
  if (phase_ == Phase::ended || news.changes() != static_cast<std::uint64_t>(changes)) {
    return;  // it will hear of that, and may see things otherwise then
  }
  const auto lives = [&](int rank) {
    return std::ranges::any_of(
        roster_.members(), [&](const Record* member) { return member->info.rank.value == rank && serves(*member); });
  };
  switch (news.what()) {
    case ServerEvent::JOINED:
      if (phase_ != Phase::running || serves(server) || !leases_planned_) {
        return;  // before that parameters are being read
      }
      note_server(ServerEvent::JOINED, server);
      log(fmt::format("{} is ready to hold parameters", describe(server.info)));
      break;
    case ServerEvent::MOVED: {  // also when all are to stop: whoever says so may have stopped answering for it
      if (!fences_.empty() || recovery_) {
        return;  // who is asked about leases is to answer for the same as the others think
      }
      if (!lives(news.primary()) || (news.backup() >= 0 && !lives(news.backup()))) {
        return;
      }
      const auto last = std::find_if(events.rbegin(), events.rend(), [&](const ServerEvent& event) {
        return event.what() == ServerEvent::MOVED && event.shelf() == news.shelf();
      });
      if (last != events.rend() && last->rank() == news.primary() && last->backup() == news.backup()) {
        return;  // it is said again
      }
      ServerEvent& event = note_server(ServerEvent::MOVED, server);
      event.set_shelf(news.shelf());
      event.set_rank(news.primary());
      event.set_backup(news.backup());
      log(fmt::format("shelf {0} is with {1} {2}{3}", news.shelf(), role_name(server.info.role), news.primary(),
                      news.backup() < 0 ? "" : fmt::format(" and {} {}", role_name(server.info.role), news.backup())));
      break;
    }
    default:
      misbehaves(server, "ServerNews");
      return;
  }
  tell_server_history();
}

control::OrderAnswer CoordinatorState::order_server_to_leave(const Record& server) {
  control::OrderAnswer answer;
  const std::string who = describe(server.info);
  if (!rules_.servers_may_change && !(rules_.workers_serve && rules_.workers_may_leave)) {
    answer.set_text(fmt::format("{} holds parameters, and stays", who));
  } else if (!serves(server)) {
    answer.set_text(fmt::format("{} is not ready yet: try again when it holds parameters", who));
  } else if (!server.leaving && staying_servers().size() < 2) {
    answer.set_text(fmt::format("{} is the last that holds parameters: stop the job instead", who));
  } else {
    Record& leaver = *roster_.find(server.info.id);
    if (!std::exchange(leaver.leaving, true)) {
      note_server(ServerEvent::LEAVES, server);
      tell_server_history();
    }
    answer.set_accepted(true);
    answer.set_text(fmt::format("{} was asked to leave, and hands over what it holds", who));
  }
  return answer;
}

}  // namespace distbelief
