#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "config/run_config.h"

// Any text is either refused with one line, or is a configuration that reads back from its own text.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace distbelief;
  RunConfig config;
  try {
    apply_config_text(config, std::string(reinterpret_cast<const char*>(data), size), "fuzz");
  } catch (const InputError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) {
      __builtin_trap();
    }
    return 0;
  }
  const std::string text = config_text(config);
  RunConfig again;
  apply_config_text(again, text, "again");
  if (config_text(again) != text) {
    __builtin_trap();
  }
  return 0;
}
