#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <png.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/print.h"
#include "commands.h"
#include "data/open.h"
#include "metrics/format.h"
#include "metrics/machine.h"
#include "run_program.h"
#include "tensor/kernel_library.h"
#include "text_layout.h"
#include "versions.h"

namespace distbelief {
namespace {

enum class State { ok, warn, missing };

/// One thing looked at: what was found and, unless all is well, how to mend it.
struct Finding {
  State state = State::ok;
  std::string what;
  std::string found;
  std::string mend = {};
};

std::string contents_of(const char* path) {
  try {
    return read_file(path);
  } catch (const FileError&) {
    return "";
  }
}

bool has(const Machine& machine, std::string_view feature) {
  return std::ranges::find(machine.features, feature) != machine.features.end();
}

Finding check_features(const Machine& machine) {
  const std::string found = fmt::format("{}", fmt::join(machine.features, " "));
  if (has(machine, "avx512f")) {
    return {State::ok, "instructions", found + ": full speed"};
  }
  if (has(machine, "avx2") && has(machine, "fma")) {
    return {State::ok, "instructions", found + ": fast; avx512f, not here, would be up to twice as fast"};
  }
  return {State::warn, "instructions", "neither avx512f nor avx2 with fma: training works, but 4 to 8 times slower",
          "use a CPU made after 2014; in a virtual machine, pass the host's CPU through (-cpu host)"};
}

/// Cores' worth of time that a container allows; 0 when it sets no limit.
double cpu_quota() {
  const std::string text = contents_of("/sys/fs/cgroup/cpu.max");  // "max 100000" or "200000 100000"
  double quota = 0;
  double period = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), quota);
  if (error != std::errc() || stop == text.data() + text.size()) {
    return 0;
  }
  std::from_chars(stop + 1, text.data() + text.size(), period);
  return period > 0 ? quota / period : 0;
}

Finding check_threads(const Machine& machine) {
  const std::string found = fmt::format("{} thread{} may run, on {} core{}", machine.threads,
                                        machine.threads == 1 ? "" : "s", machine.cores, machine.cores == 1 ? "" : "s");
  const double quota = cpu_quota();
  if (quota > 0 && quota < machine.threads - 0.5) {
    return {State::warn, "threads", fmt::format("{}, but this container gets the time of only {:.1f}", found, quota),
            fmt::format("distbelief train --threads {}", std::max(1, static_cast<int>(quota)))};
  }
  return {State::ok, "threads", found};
}

Finding check_memory(const Machine& machine) {
  const std::uint64_t available = kilobytes_of(contents_of("/proc/meminfo"), "MemAvailable");
  std::uint64_t limit = machine.memory_bytes;
  const std::string group = contents_of("/sys/fs/cgroup/memory.max");
  std::uint64_t most = 0;
  if (std::from_chars(group.data(), group.data() + group.size(), most).ec == std::errc()) {
    limit = std::min(limit, most);
  }
  const std::string found = fmt::format("{}, {} free", bytes_text(limit), bytes_text(std::min(available, limit)));
  constexpr std::uint64_t kLittle = std::uint64_t{1} << 30;
  if (std::min(available, limit) < kLittle) {
    return {State::warn, "memory", found + ": little for large models",
            "end other programs, or train with a smaller --batch; 'distbelief info MODEL' says what it needs"};
  }
  return {State::ok, "memory", found};
}

std::vector<Finding> check_libraries() {
  const KernelLibrary kernels = kernel_library();
  std::vector<Finding> findings;
  findings.push_back(
      {State::ok, "oneDNN",
       fmt::format("{}, threads by {}", kernels.version, kernels.openmp ? "OpenMP" : "its own runtime")});
  if (!kernels.openmp) {
    findings.back().state = State::warn;
    findings.back().mend = "apt install libdnnl-dev, then build again: this oneDNN ignores --threads";
  }
  const std::uint32_t png = png_access_version_number();
  findings.push_back({State::ok, "images",
                      fmt::format("libpng {}.{}.{}, libjpeg-turbo {}", png / 10000, png / 100 % 100, png % 100,
                                  TURBOJPEG_BUILT_WITH)});
  findings.push_back({State::ok, "files", fmt::format("zlib {}, yaml-cpp {}", zlibVersion(), YAML_CPP_BUILT_WITH)});
  return findings;
}

Finding check_mpi() {
  const auto text = output_of({"mpirun", "--version"}, std::chrono::seconds(5));
  if (!text) {
    return {State::warn, "MPI", "no mpirun in PATH that answers: one machine works, many do not",
            "apt install openmpi-bin libopenmpi-dev"};
  }
  return {State::ok, "MPI", text->substr(0, text->find('\n'))};
}

std::vector<Finding> check_data() {
  std::vector<Finding> findings;
  for (const KnownData& set : known_data()) {
    const bool comes_with_system = set.how_to_get.starts_with("apt ");
    if (!set.folder.empty()) {
      findings.push_back({State::ok, set.name, "found in " + set.folder.string()});
    } else if (comes_with_system) {
      findings.push_back({State::warn, set.name, "not on this machine", set.how_to_get});
    }
  }
  return findings;
}

Finding check_folder() {
  std::error_code error;
  const std::filesystem::path here = std::filesystem::current_path(error);
  struct statvfs disk {};
  if (error || ::statvfs(here.c_str(), &disk) != 0) {
    return {State::missing, "this folder", "cannot be looked at", "cd to a folder that exists"};
  }
  // Asking for a file without a name says more than access(): also whether the disk is read-only or full.
  const int file = ::open(here.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  const bool writable = file >= 0 || ((errno == EOPNOTSUPP || errno == EISDIR) && ::access(here.c_str(), W_OK) == 0);
  const std::string why = writable ? "" : std::strerror(errno);
  if (file >= 0) {
    ::close(file);
  }
  const std::uint64_t free = static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize;
  const std::string found = fmt::format("{}, {} free", here.string(), bytes_text(free));
  if (!writable) {
    return {State::missing, "this folder", fmt::format("{}: cannot write here: {}", here.string(), why),
            "cd to a folder of yours, or distbelief train --out FOLDER"};
  }
  constexpr std::uint64_t kLittle = std::uint64_t{1} << 30;
  if (free < kLittle) {
    return {State::warn, "this folder", found + ": little for checkpoints",
            "distbelief train --out FOLDER --keep-checkpoints 1"};
  }
  return {State::ok, "this folder", found};
}

std::vector<Finding> examine() {
  const Machine machine = this_machine();
  std::vector<Finding> findings = {{State::ok, "system", fmt::format("{}, {}", machine.system, machine.kernel)},
                                   {State::ok, "CPU", machine.cpu.empty() ? "of unknown kind" : machine.cpu},
                                   check_features(machine),
                                   check_threads(machine),
                                   check_memory(machine)};
  for (const Finding& finding : check_libraries()) {
    findings.push_back(finding);
  }
  findings.push_back(check_mpi());
  for (const Finding& finding : check_data()) {
    findings.push_back(finding);
  }
  findings.push_back(check_folder());
  return findings;
}

std::string state_text(State state, bool color) {
  const char* word = state == State::ok ? "ok" : state == State::warn ? "warn" : "missing";
  const char* paint = state == State::ok ? "32" : state == State::warn ? "33" : "31";
  return color ? fmt::format("\x1b[{}m{:<7}\x1b[0m", paint, word) : fmt::format("{:<7}", word);
}

}  // namespace

void add_doctor_command(CLI::App& app, const Terminal& terminal, int& exit_code) {
  CLI::App* command = app.add_subcommand("doctor", "Check this machine, and say how to mend what is missing");
  command->group("This machine");
  command->footer("Ends with code 1 when something essential is missing, otherwise with 0.");
  command->callback([&terminal, &exit_code] {
    constexpr std::size_t kColumn = 9 + 15;
    int warnings = 0;
    int missing = 0;
    for (const Finding& finding : examine()) {
      warnings += finding.state == State::warn ? 1 : 0;
      missing += finding.state == State::missing ? 1 : 0;
      const std::string mend = finding.mend.empty() ? "" : "\n-> " + finding.mend;
      print_out("{}  {:<13}  {}\n", state_text(finding.state, terminal.color), finding.what,
                wrapped(finding.found + mend, kColumn, terminal.width));
    }
    const auto counted = [](int count, const char* what) {
      return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
    };
    print_out("\n{}\n", missing > 0    ? counted(missing, "problem") + " to mend first"
                        : warnings > 0 ? "ready, with " + counted(warnings, "warning")
                                       : "ready");
    exit_code = missing > 0 ? 1 : 0;
  });
}

}  // namespace distbelief
