#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/frame.h"

// Any bytes are either refused with a reason or are exactly what encoding the header gives again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace distbelief;
  constexpr std::size_t kLongest = 1 << 20;
  if (size < kFrameHeaderBytes) {
    return 0;
  }
  const auto bytes = std::as_bytes(std::span(data, size)).first<kFrameHeaderBytes>();
  const ParsedFrameHeader parsed = parse_frame_header(bytes, kLongest);
  if (!parsed.ok()) {
    if (parsed.reason.empty()) {
      __builtin_trap();
    }
    return 0;
  }
  const FrameHeaderBytes again = encode_frame_header(parsed.header);
  if (parsed.header.length > kLongest || !std::equal(again.begin(), again.end(), bytes.begin())) {
    __builtin_trap();
  }
  return 0;
}
