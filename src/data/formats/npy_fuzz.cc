#include "base/error.h"
#include "data/formats/npy.h"

// The first byte says where the inputs end and the labels begin, in 1/256 of the rest.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace distbelief;
  if (size == 0) {
    return 0;
  }
  const auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  const std::size_t cut = bytes.size() * data[0] / 256;
  const FileBytes inputs{"inputs", nullptr, bytes.subspan(0, cut)};
  const FileBytes labels{"labels", nullptr, bytes.subspan(cut)};
  for (const FileBytes* given : {&labels, static_cast<const FileBytes*>(nullptr)}) {
    try {
      const auto set = open_npy(inputs, given, {});
      Batch batch;
      const std::uint64_t ids[] = {set->size() - 1, 0};
      set->read(ids, 0, batch);
    } catch (const FileError&) {
    }
  }
  return 0;
}
