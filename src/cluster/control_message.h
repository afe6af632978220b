#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

#include "cluster/control.pb.h"
#include "cluster/membership.h"
#include "transport/message.h"

namespace distbelief {

/// Any message of the control plane. A message's kind on the wire is its place in this list, counted from 1; so new
/// ones go to the end.
using ControlMessage =
    std::variant<control::Join, control::Welcome, control::Refused, control::Heartbeat, control::Heard, control::Fenced,
                 control::View, control::Lost, control::Order, control::LeaseRequest, control::LeaseGrant,
                 control::LeaseDone, control::FenceConfirmed, control::ExitSeen, control::StatusRequest,
                 control::StatusReply, control::Notice, control::Leave, control::Ended, control::LeasePlan,
                 control::LeaseQuestion, control::LeaseReports, control::ChaosDue, control::OrderAnswer,
                 control::ServerHistory, control::ConfigurationRequest, control::Configuration, control::ServerNews,
                 control::Measured>;

/// Far above the view of a job with a thousand members.
inline constexpr std::size_t kMaxControlBytes = std::size_t{1} << 20;

std::uint16_t kind_of(const ControlMessage& message);
/// "Join"; "kind 99" for what is none of ours.
std::string kind_name(std::uint16_t kind);

/// Whether the message counts for Join.received and Welcome.received, and is sent again on a new connection if the old
/// one broke before it arrived. The rest is either about the connection itself or out of date by then.
bool is_numbered(const ControlMessage& message);

Message encode_control(const ControlMessage& message);

/// What a peer sent, or why it is not a message: an unknown kind, bytes that are not that kind, values that no program
/// of ours sends. Believes nothing; text that is too long for a line of output is refused too.
struct [[nodiscard]] DecodedControl {
  std::variant<ControlMessage, std::string> result;

  bool ok() const { return result.index() == 0; }
  ControlMessage& message() { return std::get<0>(result); }
  const std::string& reason() const { return std::get<1>(result); }
};
DecodedControl decode_control(const Message& message);

control::Role to_wire(Role role);
Role from_wire(control::Role role);
control::Member to_wire(const MemberInfo& member);
MemberInfo from_wire(const control::Member& member);
View from_wire(const control::View& view);
Lease from_wire(const control::LeaseGrant& grant);
control::OpenLease to_wire(const Lease& lease);
Lease from_wire(const control::OpenLease& lease);
control::LeaseReport to_wire(const LeaseReport& report);
LeaseQuestion from_wire(const control::LeaseQuestion& question);
ServerHistory from_wire(const control::ServerHistory& history);

}  // namespace distbelief
