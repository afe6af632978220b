#include <cstdint>

#include "base/error.h"
#include "data/formats/file_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace distbelief;
  try {
    inflate_if_gzip({"file", nullptr, std::as_bytes(std::span(data, size))});
  } catch (const FileError&) {
  }
  return 0;
}
