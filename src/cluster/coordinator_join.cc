// How processes become members of a job, and come back after a broken connection.
#include <fmt/format.h>

#include <algorithm>

#include "cluster/coordinator_state.h"

namespace distbelief {

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) {
    return false;
  }
  volatile unsigned char difference = 0;  // volatile: the loop must not stop early
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<unsigned char>(difference | static_cast<unsigned char>(a[i] ^ b[i]));
  }
  return difference == 0;
}

std::string CoordinatorState::why_refused(const control::Join& join) const {
  // The version first: the token of another version may be made in another way.
  if (join.version() != rules_.version) {
    return fmt::format("the job runs version {}, this process is version {}", rules_.version, join.version());
  }
  if (!equal_in_constant_time(join.token(), rules_.token)) {
    return "its token is not the job's";
  }
  const bool takes_part = join.role() != control::LAUNCHER && join.role() != control::OBSERVER;
  if (takes_part && join.configuration() != rules_.configuration) {
    return fmt::format("the job's configuration is {}, this process has {}", rules_.configuration,
                       join.configuration());
  }
  return {};
}

std::string CoordinatorState::why_no_place(const control::Join& join, Role wanted, bool takes_over) const {
  if (phase_ != Phase::running) {
    return {};
  }
  if (wanted == Role::server) {
    return rules_.servers_may_change ? "" : "the servers of this job stay as they are";
  }
  if (rules_.takes_late_members) {
    return {};
  }
  if (rules_.copies_come_whole()) {
    return wanted == Role::standby || takes_over ? "" : "the job takes workers in by whole copies of the network only";
  }
  if (!rules_.workers_hold_parts()) {
    return "the job has begun and takes nobody in any more";
  }
  if (join.grows() && !bears_changes()) {
    return "who is in the job has changed too often: stop it, and go on with --resume and more workers";
  }
  const bool was_started = starting_ > 0 && join.launch() != 0;
  return wanted == Role::standby || takes_over || was_started
             ? ""
             : "the job takes workers in only by whole copies of the network, and in the places of those that die";
}

void CoordinatorState::refuse(ConnectionId connection, const control::Join& join, const std::string& reason) {
  log(fmt::format("refused pid {} on {}: {}", join.pid(), join.host(), reason));
  control::Refused refused;
  refused.set_reason(reason);
  actions_.emplace_back(Send{connection, std::make_shared<const ControlMessage>(refused)});
  actions_.emplace_back(Close{connection, "was refused: " + reason});
}

void CoordinatorState::join(ConnectionId connection, const control::Join& join) {
  if (const std::string reason = why_refused(join); !reason.empty()) {
    refuse(connection, join, reason);
    return;
  }
  if (join.member() != 0) {
    Record* record = roster_.find(join.member());
    if (record != nullptr && record->info.incarnation == join.incarnation() && record->living()) {
      resume(connection, *record, join);
      return;
    }
    if (record != nullptr && record->state == Record::State::left) {  // it did not hear that its Leave was heard
      control::Heard heard;
      heard.set_term(term_);
      heard.set_received(record->received);
      actions_.emplace_back(Send{connection, std::make_shared<const ControlMessage>(heard)});
      actions_.emplace_back(Close{connection, "left"});
      return;
    }
    control::Fenced fenced;
    fenced.set_term(term_);
    const bool known = record != nullptr && record->info.incarnation == join.incarnation();
    fenced.set_reason(known ? fmt::format("the coordinator gave this process up: {}", record->reason)
                            : "the coordinator does not know this process");
    if (known && record->may_come_again) {
      fenced.set_come_again(true);
      record->expected_until = now_ + rules_.replacement_limit;  // it lives, but has its step to end first
    }
    actions_.emplace_back(Send{connection, std::make_shared<const ControlMessage>(fenced)});
    actions_.emplace_back(Close{connection, "is no member any more"});
    return;
  }
  if (Record* record = join.nonce() == 0 ? nullptr : roster_.find_nonce(join.nonce()); record != nullptr) {
    resume(connection, *record, join);  // its Welcome got lost
    return;
  }

  const Role wanted = from_wire(join.role());
  const bool takes_part = wanted != Role::observer && wanted != Role::launcher;
  if (phase_ == Phase::ended || (phase_ == Phase::stopping && takes_part)) {
    refuse(connection, join, fmt::format("the job is {}", phase_text()));
    return;
  }
  const bool takes_over = takes_part && wanted != Role::standby && was_called(join);
  if (const std::string reason = takes_part ? why_no_place(join, wanted, takes_over) : ""; !reason.empty()) {
    refuse(connection, join, reason);
    return;
  }
  for (auto& [id, record] : roster_.records()) {
    if (record.living() && record.exit) {
      declare_dead_by_exit(record);  // this may be the same process, started again, and needs its place
    }
  }
  const auto found = roster_.find_place(wanted, Rank{join.rank()});
  if (const auto* reason = std::get_if<std::string>(&found)) {
    refuse(connection, join, *reason);
    return;
  }
  const auto place = std::get<Roster::Place>(found);
  Record newcomer;
  newcomer.info = {.id = next_member_++,
                   .incarnation = next_incarnation_++,
                   .role = place.role,
                   .rank = place.rank,
                   .host = join.host(),
                   .pid = join.pid(),
                   .facts = join.facts()};
  newcomer.nonce = join.nonce();
  newcomer.launch = join.launch();
  newcomer.grows = join.grows() && place.role == Role::standby;
  newcomer.process = process_of(join);
  newcomer.term = term_;
  newcomer.heard_at = now_;
  newcomer.moved_at = now_;
  Record& record = roster_.add(std::move(newcomer));
  roster_.connect(record, connection);
  welcome(record);
  if (place.role != Role::observer) {
    unsaved_ = true;
    log(fmt::format("{} joined", describe(record.info)));
  }
  if (phase_ == Phase::running && record.takes_part()) {
    if (server_history_.events_size() > 0) {
      tell(record, server_history_);
    }
    if (record.launch != 0 && !takes_over) {
      expect_one_less(record.info.role);
    }
    if (record.info.role == Role::server) {
      missing_servers_ = std::max(0, missing_servers_ - 1);
    }
    if (rules_.workers_hold_parts() && awaited() > 0) {  // then nobody forms the group of a view
      view_reasons_.push_back(fmt::format("{} joined", describe(record.info)));
    } else {
      change_view(fmt::format("{} joined", describe(record.info)), std::chrono::milliseconds(10));
    }
  }
  if (place.role == Role::standby && came_again(join)) {
    newcomer_came(record, false);
  } else if (record.grows) {
    newcomer_came(record, record.launch != 0);
  }
  if (takes_over && rules_.copies_come_whole() && broken_copies_.contains(record.info.rank.value / rules_.parts)) {
    declare_lost(record, "was to be part of a copy of the network that lost another", true);
  }
}

void CoordinatorState::resume(ConnectionId connection, Record& record, const control::Join& join) {
  if (join.term() > term_) {
    actions_.emplace_back(Close{connection, "has heard of a coordinator after this one"});
    return;
  }
  const bool knows_this_term = join.term() == term_ || (join.term() == 0 && record.term == term_);
  if (knows_this_term && !record.outbox.acknowledge(join.received())) {
    actions_.emplace_back(Close{connection, fmt::format("says it received {} messages", join.received())});
    return;
  }
  if (record.connection != ConnectionId{}) {
    actions_.emplace_back(Close{record.connection, "was replaced by a new connection"});
  }
  roster_.connect(record, connection);
  record.state = Record::State::alive;
  record.process = process_of(join);
  record.is_awaited = false;
  record.heard_at = now_;
  log(fmt::format("{} {}", describe(record.info), knows_this_term ? "reconnected" : "came back"));
  if (!knows_this_term) {
    begin_anew(record, join);
  }
  welcome(record);
  for (const SharedControlMessage& message : record.outbox.waiting()) {
    actions_.emplace_back(Send{connection, message});
  }
}

void CoordinatorState::on(Record& record, const control::ConfigurationRequest& /*request*/) {
  control::Configuration configuration;
  configuration.set_text(rules_.invitation);
  tell(record, configuration);
}

void CoordinatorState::welcome(Record& record) {
  actions_.emplace_back(Trust{record.connection});
  control::Welcome welcome;
  welcome.set_member(record.info.id);
  welcome.set_incarnation(record.info.incarnation);
  welcome.set_role(to_wire(record.info.role));
  welcome.set_rank(record.info.rank.value);
  welcome.set_term(term_);
  welcome.set_heartbeat_milliseconds(static_cast<std::uint32_t>(rules_.heartbeat.count()));
  welcome.set_received(record.received);
  welcome.set_return_milliseconds(static_cast<std::uint32_t>(rules_.return_limit.count()));
  welcome.set_shares(shares_);
  tell(record, welcome);
}

}  // namespace distbelief
