#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "checkpoint/manifest.h"

// Any text is either refused with a FileError or survives being written and read again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace distbelief;
  try {
    const auto manifest = parse_manifest({reinterpret_cast<const char*>(data), size}, "fuzz");
    if (parse_manifest(manifest_text(manifest), "again").files != manifest.files) {
      __builtin_trap();
    }
  } catch (const FileError&) {
  }
  return 0;
}
