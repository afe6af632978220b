#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "cluster/chaos_script.h"

// Any text is either refused with one line that has a column, or is a script whose events read back as they are.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace distbelief;
  ChaosScript script;
  try {
    script = parse_chaos(std::string_view(reinterpret_cast<const char*>(data), size));
  } catch (const InputError& error) {
    const std::string_view message = error.what();
    if (message.find('\n') != std::string_view::npos || !message.starts_with("column ")) {
      __builtin_trap();
    }
    return 0;
  }
  for (const ChaosEvent& event : script.events) {
    const ChaosScript again = parse_chaos(event.text);
    if (again.events.size() != 1 || again.events[0].text != event.text ||
        again.events[0].first_step != event.first_step || again.events[0].subject.first != event.subject.first ||
        event.first_step > event.last_step) {
      __builtin_trap();
    }
  }
  try {
    script.check_fit({.workers = 3, .servers = 2, .workers_are_threads = true});
  } catch (const InputError&) {  // expected of most
  }
  return 0;
}
