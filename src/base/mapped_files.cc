#include "base/mapped_files.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>

namespace distbelief {
namespace {

/// `end` is written last and read first: an entry without it is nobody's business but its owner's.
struct Mapping {
  std::atomic<bool> taken = false;
  std::atomic<std::uintptr_t> begin = 0;
  std::atomic<std::uintptr_t> end = 0;
  std::atomic<const char*> name = nullptr;
};

std::array<Mapping, 256> mappings;  // what a signal handler may read

void say(const char* text) {
  if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) {
    return;  // there is nobody to tell
  }
}

extern "C" void name_shrunken_file(int signal, siginfo_t* info, void* /*context*/) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (const Mapping& mapping : mappings) {
    const std::uintptr_t end = mapping.end;
    if (address < end && address >= mapping.begin) {
      say("distbelief: ");
      say(mapping.name);
      say(": became shorter, or could not be read, while it was in use\n");
      ::_exit(2);
    }
  }
  std::signal(signal, SIG_DFL);  // what follows is the same instruction once more
}

}  // namespace

int remember_mapping(const void* begin, std::size_t size, const char* name) {
  for (std::size_t i = 0; i < mappings.size(); ++i) {
    Mapping& mapping = mappings[i];
    if (!mapping.taken && !mapping.taken.exchange(true)) {
      mapping.name = name;
      mapping.begin = reinterpret_cast<std::uintptr_t>(begin);
      mapping.end = mapping.begin + size;
      return static_cast<int>(i);
    }
  }
  return -1;
}

void forget_mapping(int place) {
  if (place >= 0) {
    Mapping& mapping = mappings[static_cast<std::size_t>(place)];
    mapping.end = 0;
    mapping.taken = false;
  }
}

void name_files_that_shrink() {
  struct sigaction action {};
  action.sa_sigaction = name_shrunken_file;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace distbelief
