#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "transport/address.h"
#include "transport/socket/tls_stream.h"

namespace distbelief {

struct [[nodiscard]] HttpAnswer {
  int status = 0;  ///< as in "200 OK"; 0: there is no answer
  std::string body = {};
  std::string reason = {};  ///< for people, when there is none: "Connection refused"
};

/// Sends JSON to a server and reads what it answers, on a connection of its own, by the deadline, whatever the server
/// does: that it does not listen, answer or end is a value. Version 1.0 of HTTP: the answer ends with the connection.
/// `longest`: more bytes than that are no answer. Any thread.
HttpAnswer http_post(const Address& server, const StreamMaker& streams, std::string_view path, std::string_view json,
                     Clock::time_point deadline, std::size_t longest = std::size_t{16} << 20);

}  // namespace distbelief
