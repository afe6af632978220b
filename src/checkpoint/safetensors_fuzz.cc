#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "checkpoint/safetensors.h"

// Any bytes are either refused with a FileError or every tensor in them can be read.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace distbelief;
  try {
    const SafetensorsView view(std::as_bytes(std::span(data, size)), "fuzz");
    for (const TensorEntry& tensor : view.tensors()) {
      std::vector<float> values((tensor.end - tensor.begin) / size_of(tensor.type));
      view.read(tensor, values);
    }
  } catch (const FileError&) {
  }
  return 0;
}
