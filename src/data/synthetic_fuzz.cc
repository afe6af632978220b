#include "base/error.h"
#include "data/synthetic.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace distbelief;
  try {
    const SyntheticOptions options = parse_synthetic({reinterpret_cast<const char*>(data), size});
    if (options.shape.elements() < 4096 && options.targets < 100 && options.nonzeros < 4096) {
      Batch batch;
      const std::uint64_t ids[] = {options.samples - 1, 0};
      make_synthetic(options).train->read(ids, 0, batch);
    }
  } catch (const InputError&) {
  }
  return 0;
}
