#pragma once

#include <cstddef>
#include <span>

#include "server/parameter_server.h"
#include "server/wire.h"

namespace distbelief {

/// How long the body of a request to this server must be; of a piece of state, how long it may be.
std::size_t request_bytes(RequestHead::Kind kind, std::size_t blocks, std::size_t floats);
/// The same of a push or a fetch of runs, which have so many floats together.
std::size_t runs_request_bytes(RequestHead::Kind kind, std::size_t blocks, std::size_t runs, std::size_t floats);
/// Whether there is such a request to this server.
bool is_request(const RequestHead& head, std::size_t blocks, std::size_t floats);
/// Whether this can be the body of a request that is one.
bool is_body(const ParameterServer& server, const RequestHead& head, std::span<const std::byte> in);
/// The longest that the body of a request or a reply can be.
std::size_t most_body_bytes(std::size_t blocks, std::size_t floats);

/// Whether the answer has to wait until pushes have made parameters newer.
bool must_wait(ParameterServer& server, const RequestHead& head, std::span<const std::byte> in);
/// Whether it changes anything, here or in the books of who leads; others only read.
bool is_change(RequestHead::Kind kind);
/// Does what was asked for; the reply's body, of reply.body_bytes bytes, is in `out`, which has room for the longest.
/// `in` is the body of that request, and both are aligned as numbers are. Thread-safe.
ReplyHead answer(ParameterServer& server, const RequestHead& head, std::span<const std::byte> in,
                 std::span<std::byte> out);

}  // namespace distbelief
