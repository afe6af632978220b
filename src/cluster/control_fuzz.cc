#include <cstddef>
#include <cstdint>
#include <string>

#include "cluster/control_message.h"

// The first byte is the kind. Any bytes are either refused with a reason or survive being written and read again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace distbelief;
  if (size == 0) {
    return 0;
  }
  auto decoded = decode_control({data[0], std::string(reinterpret_cast<const char*>(data + 1), size - 1)});
  if (!decoded.ok()) {
    if (decoded.reason().empty()) {
      __builtin_trap();
    }
    return 0;
  }
  auto again = decode_control(encode_control(decoded.message()));
  if (!again.ok() || kind_of(again.message()) != data[0]) {
    __builtin_trap();
  }
  return 0;
}
