#include "data/formats/csv.h"
#include "data/formats/text_rows_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return distbelief::fuzz_text_rows(data, size, distbelief::open_csv);
}
