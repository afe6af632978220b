#include "base/error.h"
#include "data/formats/cifar.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace distbelief;
  try {
    const auto set = open_cifar10({{"file", nullptr, std::as_bytes(std::span(data, size))}});
    Batch batch;
    const std::uint64_t ids[] = {set->size() - 1, 0};
    set->read(ids, 0, batch);
  } catch (const FileError&) {
  }
  return 0;
}
