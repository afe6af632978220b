#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "transport/message_reader.h"

// Any bytes, cut in two at any place, give the same messages and the same fault as in one piece.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace distbelief;
  const auto read_all = [](MessageReader& reader, std::span<const std::byte> bytes, std::string& found) {
    for (;;) {
      const MessageReader::Step step = reader.next(bytes);
      if (step.kind == MessageReader::Step::Kind::needs_more) {
        return true;
      }
      found += encode_message(step.message) + step.reason;
      if (step.kind == MessageReader::Step::Kind::fault) {
        return false;
      }
    }
  };
  if (size == 0) {
    return 0;
  }
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  const std::size_t cut = data[0] % (bytes.size() + 1);
  std::string whole;
  std::string pieces;
  MessageReader first(1 << 16);
  (void)read_all(first, bytes, whole);
  MessageReader second(1 << 16);
  if (read_all(second, bytes.first(cut), pieces)) {
    (void)read_all(second, bytes.subspan(cut), pieces);
  }
  if (whole != pieces) {
    __builtin_trap();
  }
  return 0;
}
