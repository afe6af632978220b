#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "models/model_file.h"
#include "models/model_text.h"

// Any text is either refused with one line, or is a model whose layers, parameters and operations can be counted.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace distbelief;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const SampleSpec& samples : {SampleSpec{}, SampleSpec{.input = {3, 16, 16}, .classes = 4},
                                    SampleSpec{.input = {100}, .sparse = true, .classes = 2},
                                    SampleSpec{.input = {7}, .indices = true, .targets = 3}}) {
    try {
      const ModelSummary summary = summarize(parse_model(text, "fuzz", samples));
      if (summary.flops < 0 || summary.parameters < 0 || model_text(summary).empty()) {
        __builtin_trap();
      }
    } catch (const InputError& error) {
      if (std::string_view(error.what()).find('\n') != std::string_view::npos) {
        __builtin_trap();
      }
    }
  }
  return 0;
}
