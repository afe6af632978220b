#pragma once

#include <string>

#include "cluster/membership.h"

namespace distbelief {

/// What a member tells the others of itself when it joins, in a line: see JoinRequest::facts.
struct PeerFacts {
  std::string first = {};  ///< where it listens for those it begins the job with, if they talk over sockets
  std::string late = {};   ///< where it listens for those that come later, if any may
  std::string cores = {};  ///< the same for members of one machine that may use the same cores

  std::string text() const;
  /// What is missing, or no such line, says nothing.
  static PeerFacts parse(const std::string& text);
  static PeerFacts of(const MemberInfo& member) { return parse(member.facts); }
};

}  // namespace distbelief
