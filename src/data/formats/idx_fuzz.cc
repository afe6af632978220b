#include "base/error.h"
#include "data/formats/idx.h"

// The first byte says where the images end and the labels begin, in 1/256 of the rest.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace distbelief;
  if (size == 0) {
    return 0;
  }
  const auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  const std::size_t cut = bytes.size() * data[0] / 256;
  try {
    const FileBytes images = inflate_if_gzip({"images", nullptr, bytes.subspan(0, cut)});
    const FileBytes labels = inflate_if_gzip({"labels", nullptr, bytes.subspan(cut)});
    const auto set = open_idx(images, labels);
    Batch batch;
    const std::uint64_t ids[] = {set->size() - 1, 0};
    set->read(ids, 0, batch);
  } catch (const FileError&) {
  }
  return 0;
}
