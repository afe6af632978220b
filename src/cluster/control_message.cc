#include "cluster/control_message.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace distbelief {
namespace {

constexpr std::size_t kMaxLine = 4096;
constexpr std::size_t kKinds = std::variant_size_v<ControlMessage>;

constexpr std::array<std::string_view, kKinds> kNames = {"Join",           "Welcome",
                                                         "Refused",        "Heartbeat",
                                                         "Heard",          "Fenced",
                                                         "View",           "Lost",
                                                         "Order",          "LeaseRequest",
                                                         "LeaseGrant",     "LeaseDone",
                                                         "FenceConfirmed", "ExitSeen",
                                                         "StatusRequest",  "StatusReply",
                                                         "Notice",         "Leave",
                                                         "Ended",          "LeasePlan",
                                                         "LeaseQuestion",  "LeaseReports",
                                                         "ChaosDue",       "OrderAnswer",
                                                         "ServerHistory",  "ConfigurationRequest",
                                                         "Configuration",  "ServerNews",
                                                         "Measured"};

std::string with_article(std::uint16_t kind) {
  const std::string name = kind_name(kind);
  return (name[0] == 'O' || name[0] == 'E' ? "an " : "a ") + name;
}

/// Lets the first complaint stand; empty when there is none.
class Complaint {
 public:
  Complaint& line(std::string_view text, std::string_view name) {
    if (text.size() > kMaxLine) {
      say(fmt::format("{} of {} bytes", name, text.size()));
    }
    return *this;
  }
  Complaint& role(int role, int lowest) {
    if (role < lowest || role > control::STANDBY) {
      say(fmt::format("role {}", role));
    }
    return *this;
  }
  Complaint& rank(int rank) { return at_least(rank, -1, "rank"); }
  Complaint& at_least(std::int64_t value, std::int64_t least, std::string_view name) {
    if (value < least) {
      say(fmt::format("{} {}", name, value));
    }
    return *this;
  }
  std::string take() { return std::move(text_); }

 private:
  void say(std::string text) {
    if (text_.empty()) {
      text_ = std::move(text);
    }
  }
  std::string text_;
};

void examine(const control::OpenLease& lease, Complaint& complaint) {
  complaint.at_least(lease.epoch(), 0, "epoch").at_least(lease.first(), 0, "first sample");
  complaint.at_least(lease.count(), 1, "count");
}
void examine(const control::Join& join, Complaint& complaint) {
  complaint.line(join.version(), "version").line(join.token(), "token").line(join.configuration(), "configuration");
  complaint.line(join.host(), "host").line(join.facts(), "line of facts").rank(join.rank()).role(join.role(), 0);
  complaint.line(join.process(), "process");
  complaint.at_least(join.pid(), 0, "pid");
  for (const control::OpenLease& lease : join.holds()) {
    examine(lease, complaint);
  }
}
void examine(const control::Member& member, Complaint& complaint) {
  complaint.line(member.host(), "host").line(member.facts(), "line of facts").rank(member.rank());
  complaint.role(member.role(), control::WORKER).at_least(member.pid(), 0, "pid");
}
void examine(const control::Progress& progress, Complaint& complaint) {
  complaint.line(progress.operation(), "operation").at_least(progress.step(), 0, "step");
  complaint.at_least(progress.epoch(), 0, "epoch");
}
void examine(const control::Welcome& welcome, Complaint& complaint) {
  complaint.role(welcome.role(), control::WORKER).rank(welcome.rank());
  complaint.at_least(welcome.heartbeat_milliseconds(), 1, "heartbeat interval").line(welcome.shares(), "shares");
}
void examine(const control::Measured& measured, Complaint& complaint) { complaint.line(measured.shares(), "shares"); }
void examine(const control::Refused& refused, Complaint& complaint) { complaint.line(refused.reason(), "reason"); }
void examine(const control::Heartbeat& heartbeat, Complaint& complaint) { examine(heartbeat.progress(), complaint); }
void examine(const control::Heard& /*heard*/, Complaint& /*complaint*/) {}
void examine(const control::Fenced& fenced, Complaint& complaint) { complaint.line(fenced.reason(), "reason"); }
void examine(const control::View& view, Complaint& complaint) {
  complaint.line(view.reason(), "reason");
  for (const control::Member& member : view.members()) {
    examine(member, complaint);
  }
  for (const int rank : view.leaving()) {
    complaint.rank(rank);
  }
}
void examine(const control::Lost& lost, Complaint& complaint) {
  examine(lost.member(), complaint);
  complaint.line(lost.reason(), "reason").line(lost.remedy(), "remedy");
}
void examine(const control::Order& order, Complaint& complaint) {
  complaint.line(order.reason(), "reason").at_least(order.what(), control::Order::STOP, "order");
  complaint.at_least(-order.what(), -control::Order::TAKE_OVER, "order").rank(order.rank());
  complaint.at_least(order.workers(), 0, "workers").at_least(order.servers(), 0, "servers");
}
void examine(const control::OrderAnswer& answer, Complaint& complaint) { complaint.line(answer.text(), "text"); }
void examine(const control::ConfigurationRequest& /*request*/, Complaint& /*complaint*/) {}
void examine(const control::Configuration& /*configuration*/, Complaint& /*complaint*/) {}
void examine(const control::LeaseRequest& request, Complaint& complaint) {
  complaint.at_least(request.samples(), 1, "samples");
}
void examine(const control::LeaseGrant& grant, Complaint& complaint) {
  complaint.at_least(grant.epoch(), 0, "epoch").at_least(grant.first(), 0, "first sample");
  complaint.at_least(grant.count(), grant.finished() ? 0 : 1, "count");
}
void examine(const control::LeasePlan& plan, Complaint& complaint) {
  complaint.at_least(plan.samples_per_epoch(), 1, "samples")
      .at_least(plan.first_epoch(), 0, "epoch")
      .at_least(plan.epochs(), 0, "epochs")
      .at_least(plan.first_position(), 0, "first position")
      .at_least(plan.samples_per_epoch() - 1, plan.first_position(), "samples")
      .at_least(plan.warm_samples(), 0, "samples of a warm start");
  for (const control::OpenLease& lease : plan.returned()) {
    examine(lease, complaint);
  }
}
void examine(const control::LeaseReport& report, Complaint& complaint) {
  for (const control::OpenLease& lease : report.leases()) {
    examine(lease, complaint);
  }
}
void examine(const control::LeaseQuestion& question, Complaint& complaint) {
  for (const control::LeaseReport& report : question.reports()) {
    examine(report, complaint);
  }
  for (const control::OpenLease& lease : question.held()) {
    examine(lease, complaint);
  }
}
void examine(const control::LeaseReports& reports, Complaint& complaint) {
  for (const control::LeaseReport& report : reports.reports()) {
    examine(report, complaint);
  }
}
void examine(const control::LeaseDone& /*done*/, Complaint& /*complaint*/) {}
void examine(const control::FenceConfirmed& /*confirmed*/, Complaint& /*complaint*/) {}
void examine(const control::ExitSeen& exit, Complaint& complaint) {
  complaint.line(exit.host(), "host").line(exit.name(), "name").at_least(exit.signal(), 0, "signal");
}
void examine(const control::StatusRequest& /*request*/, Complaint& /*complaint*/) {}
void examine(const control::StatusReply& reply, Complaint& complaint) {
  complaint.line(reply.phase(), "phase");
  for (const control::MemberStatus& row : reply.members()) {
    examine(row.member(), complaint);
    examine(row.progress(), complaint);
    complaint.line(row.reason(), "reason").at_least(row.state(), 0, "state");
    complaint.at_least(-row.state(), -control::MemberStatus::LOST, "state");
  }
}
void examine(const control::ServerNews& news, Complaint& complaint) {
  complaint.at_least(news.what(), control::ServerHistory::Event::JOINED, "event");
  complaint.at_least(-news.what(), -control::ServerHistory::Event::MOVED, "event");
  complaint.at_least(news.shelf(), 0, "shelf").rank(news.primary()).rank(news.backup());
}
void examine(const control::ServerHistory& history, Complaint& complaint) {
  for (const control::ServerHistory::Event& event : history.events()) {
    complaint.line(event.host(), "host").at_least(event.rank(), 0, "rank").at_least(event.what(), 0, "event");
    complaint.at_least(-event.what(), -control::ServerHistory::Event::MOVED, "event");
    complaint.at_least(event.shelf(), 0, "shelf").rank(event.backup());
  }
}
void examine(const control::ChaosDue& due, Complaint& complaint) { complaint.line(due.event(), "event"); }
void examine(const control::Notice& notice, Complaint& complaint) { complaint.line(notice.text(), "text"); }
void examine(const control::Leave& leave, Complaint& complaint) { complaint.line(leave.result(), "result"); }
void examine(const control::Ended& ended, Complaint& complaint) { complaint.line(ended.reason(), "reason"); }

/// The message of the kind number `index`, empty.
template <std::size_t... Index>
ControlMessage make_empty(std::size_t index, std::index_sequence<Index...> /*kinds*/) {
  using Make = ControlMessage (*)();
  static constexpr Make kMake[] = {[] { return ControlMessage(std::in_place_index<Index>); }...};
  return kMake[index]();
}

}  // namespace

std::uint16_t kind_of(const ControlMessage& message) { return static_cast<std::uint16_t>(message.index() + 1); }

std::string kind_name(std::uint16_t kind) {
  return kind >= 1 && kind <= kKinds ? std::string(kNames[kind - 1]) : fmt::format("kind {}", kind);
}

bool is_numbered(const ControlMessage& message) {
  // The first six of the list are about the connection.
  static_assert(std::is_same_v<std::variant_alternative_t<5, ControlMessage>, control::Fenced>);
  return message.index() > 5;
}

Message encode_control(const ControlMessage& message) {
  return {kind_of(message), std::visit([](const auto& content) { return content.SerializeAsString(); }, message)};
}

DecodedControl decode_control(const Message& message) {
  const std::uint16_t kind = message.kind;
  if (kind < 1 || kind > kKinds) {
    return {fmt::format("a message of unknown kind {}", kind)};
  }
  if (message.body.size() > kMaxControlBytes) {
    return {fmt::format("{} of {} bytes", with_article(kind), message.body.size())};
  }
  ControlMessage decoded = make_empty(kind - 1U, std::make_index_sequence<kKinds>());
  if (!std::visit([&](auto& content) { return content.ParseFromString(message.body); }, decoded)) {
    return {fmt::format("{} bytes that are no {}", message.body.size(), kind_name(kind))};
  }
  Complaint complaint;
  std::visit([&](const auto& content) { examine(content, complaint); }, decoded);
  if (const std::string what = complaint.take(); !what.empty()) {
    return {fmt::format("{} with {}", with_article(kind), what)};
  }
  return {std::move(decoded)};
}

control::Role to_wire(Role role) {
  switch (role) {
    case Role::any:
      return control::ANY;
    case Role::worker:
      return control::WORKER;
    case Role::server:
      return control::SERVER;
    case Role::launcher:
      return control::LAUNCHER;
    case Role::observer:
      return control::OBSERVER;
    case Role::standby:
      return control::STANDBY;
  }
  check(false, "a role that has no number on the wire");
  return control::ANY;
}

Role from_wire(control::Role role) {
  switch (role) {
    case control::WORKER:
      return Role::worker;
    case control::SERVER:
      return Role::server;
    case control::LAUNCHER:
      return Role::launcher;
    case control::OBSERVER:
      return Role::observer;
    case control::STANDBY:
      return Role::standby;
    default:
      return Role::any;
  }
}

control::Member to_wire(const MemberInfo& member) {
  control::Member wire;
  wire.set_id(member.id);
  wire.set_incarnation(member.incarnation);
  wire.set_role(to_wire(member.role));
  wire.set_rank(member.rank.value);
  wire.set_host(member.host);
  wire.set_pid(member.pid);
  wire.set_facts(member.facts);
  return wire;
}

MemberInfo from_wire(const control::Member& member) {
  return {.id = member.id(),
          .incarnation = member.incarnation(),
          .role = from_wire(member.role()),
          .rank = Rank{member.rank()},
          .host = member.host(),
          .pid = member.pid(),
          .facts = member.facts()};
}

View from_wire(const control::View& wire) {
  View view{.term = wire.term(),
            .number = wire.number(),
            .reason = wire.reason(),
            .peaceful = wire.peaceful(),
            .complete = wire.complete(),
            .awaited = static_cast<int>(wire.awaited()),
            .most_workers = static_cast<int>(wire.most_workers())};
  for (const control::Member& member : wire.members()) {
    view.members.push_back(from_wire(member));
  }
  view.failed.assign(wire.failed().begin(), wire.failed().end());
  view.done.assign(wire.done().begin(), wire.done().end());
  for (const int rank : wire.leaving()) {
    view.leaving.push_back(Rank{rank});
  }
  return view;
}

Lease from_wire(const control::LeaseGrant& grant) {
  return {.id = grant.lease(),
          .epoch = grant.epoch(),
          .first = grant.first(),
          .count = grant.count(),
          .next_push = grant.next_push(),
          .low_water = grant.low_water(),
          .begun = grant.begun()};
}

control::OpenLease to_wire(const Lease& lease) {
  control::OpenLease wire;
  wire.set_lease(lease.id);
  wire.set_epoch(lease.epoch);
  wire.set_first(lease.first);
  wire.set_count(lease.count);
  wire.set_next_push(lease.next_push);
  return wire;
}

Lease from_wire(const control::OpenLease& lease) {
  return {.id = lease.lease(),
          .epoch = lease.epoch(),
          .first = lease.first(),
          .count = lease.count(),
          .next_push = lease.next_push()};
}

control::LeaseReport to_wire(const LeaseReport& report) {
  control::LeaseReport wire;
  wire.set_low_water(report.low_water);
  for (const Lease& lease : report.leases) {
    *wire.add_leases() = to_wire(lease);
  }
  return wire;
}

LeaseQuestion from_wire(const control::LeaseQuestion& wire) {
  LeaseQuestion question = {.number = wire.number(), .for_plan = wire.for_plan(), .first_lease = wire.first_lease()};
  for (const control::LeaseReport& report : wire.reports()) {
    LeaseReport& told = question.reports.emplace_back();
    told.low_water = report.low_water();
    for (const control::OpenLease& lease : report.leases()) {
      told.leases.push_back(from_wire(lease));
    }
  }
  for (const control::OpenLease& lease : wire.held()) {
    question.held.push_back(from_wire(lease));
  }
  return question;
}

ServerHistory from_wire(const control::ServerHistory& wire) {
  ServerHistory history;
  for (const control::ServerHistory::Event& event : wire.events()) {
    history.events.push_back({.what = static_cast<ServerHistory::What>(event.what()),
                              .rank = Rank{event.rank()},
                              .host = event.host(),
                              .shelf = event.shelf(),
                              .backup = Rank{event.backup()}});
  }
  return history;
}

}  // namespace distbelief
