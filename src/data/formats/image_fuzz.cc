#include "base/error.h"
#include "data/formats/image.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace distbelief;
  try {
    const Image image = decode_image(std::as_bytes(std::span(data, size)), "file", 8, 8);
    std::vector<float> out(std::size_t{3} * 8 * 8);
    fit_image(image, 3, 8, 8, out.data());
  } catch (const FileError&) {
  }
  return 0;
}
