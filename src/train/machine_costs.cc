#include "train/machine_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <new>

#include "base/error.h"
#include "base/file.h"
#include "exec/part_timer.h"
#include "metrics/machine.h"
#include "train/core_share.h"
#include "train/memory_probe.h"

namespace distbelief {
namespace {

std::string value_in(const std::vector<std::string>& environment, std::string_view name) {
  for (const std::string& variable : environment) {
    if (variable.size() > name.size() && variable.starts_with(name) && variable[name.size()] == '=') {
      return variable.substr(name.size() + 1);
    }
  }
  return {};
}

/// Times of another processor in the same home folder are in another file.
std::string file_name(const char* what, const std::string& cpu) {
  std::uint64_t digest = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : cpu) {
    digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return fmt::format("{}-{:016x}.txt", what, digest);
}

/// Numbers above 0, a line each below a heading; nothing when the text is something else.
std::optional<std::vector<double>> numbers_in(std::string_view text, const std::string& heading, std::size_t count) {
  std::vector<double> numbers;
  if (!text.starts_with(heading) || !text.ends_with('\n')) {
    return std::nullopt;
  }
  text.remove_prefix(heading.size());
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() + 1);
    double number = 0;
    const auto [stop, error] = std::from_chars(line.data(), line.data() + line.size(), number);
    if (error != std::errc() || stop != line.data() + line.size() || !std::isfinite(number) || number <= 0) {
      return std::nullopt;
    }
    numbers.push_back(number);
  }
  return numbers.size() == count ? std::optional(numbers) : std::nullopt;
}

/// What a file of the cache folder says, or, when it says nothing, what is measured and then kept there. The first plan
/// sees what the next one will.
std::optional<std::vector<double>> remembered(const std::filesystem::path& folder, const std::string& what,
                                              std::size_t count, const std::function<std::vector<double>()>& measure,
                                              std::vector<std::string>& notes) {
  const std::string heading = fmt::format("distbelief {} 1\n", what);
  const std::filesystem::path file = folder.empty() ? folder : folder / file_name(what.c_str(), this_machine().cpu);
  try {
    if (!file.empty() && std::filesystem::exists(file)) {
      if (std::optional<std::vector<double>> known = numbers_in(read_file(file), heading, count)) {
        return known;
      }
      notes.push_back(
          fmt::format("{} does not say what it should of the {}, which is measured anew", file.string(), what));
    }
  } catch (const std::exception& error) {
    notes.push_back(fmt::format("{}; the {} is measured anew", error.what(), what));
  }
  std::string text = heading;
  for (const double number : measure()) {
    text += fmt::format("{:.4g}\n", number);
  }
  const std::optional<std::vector<double>> numbers = numbers_in(text, heading, count);
  if (numbers && !file.empty()) {
    try {
      std::filesystem::create_directories(folder);
      write_file_atomically(file, text);
    } catch (const std::exception& error) {
      notes.push_back(fmt::format("what was measured of the {} is not kept: {}", what, error.what()));
    }
  }
  return numbers;
}

/// "2 threads, 3 at once".
std::string text_of(const TimedLoad& load) {
  return fmt::format("{} thread{}, {} at once", load.threads, load.threads == 1 ? "" : "s", load.processes);
}

}  // namespace

TimedLoad load_of_machine(int processes, int threads) {
  return {.threads = threads, .processes = std::clamp(processes, 1, std::max(1, usable_cores() / threads))};
}

std::optional<LinkSpeed> measured_link(const std::filesystem::path& folder, std::vector<std::string>& notes) {
  const auto measure = [] {
    const std::optional<LinkSpeed> link = probe_local_link();
    return link ? std::vector{link->latency, link->bandwidth} : std::vector<double>();
  };
  const std::optional<std::vector<double>> numbers = remembered(folder, "link", 2, measure, notes);
  return numbers ? std::optional(LinkSpeed{numbers->at(0), numbers->at(1)}) : std::nullopt;
}

std::optional<double> measured_memory(const std::filesystem::path& folder, const TimedLoad& load,
                                      std::vector<std::string>& notes) {
  const std::string what = fmt::format("memory-{}-{}", load.threads, load.processes);
  const auto measure = [&]() -> std::vector<double> {
    try {
      return {probe_memory(load)};
    } catch (const std::bad_alloc&) {
      return {};
    }
  };
  const std::optional<std::vector<double>> numbers = remembered(folder, what, 1, measure, notes);
  return numbers ? std::optional(numbers->at(0)) : std::nullopt;
}

std::filesystem::path cache_folder(const std::vector<std::string>& environment) {
  const std::string cache = value_in(environment, "XDG_CACHE_HOME");
  const std::string home = value_in(environment, "HOME");
  if (cache.starts_with('/')) {  // as its specification wants it
    return std::filesystem::path(cache) / "distbelief";
  }
  return home.empty() ? std::filesystem::path() : std::filesystem::path(home) / ".cache" / "distbelief";
}

MeasuredLayers::MeasuredLayers(const std::filesystem::path& folder, const TimedLoad& load,
                               std::function<void(int before)> before_measuring)
    : file_(folder.empty() ? folder : folder / file_name("layers", this_machine().cpu)),
      load_(load),
      before_measuring_(std::move(before_measuring)),
      profile_(
          this_machine().cpu, text_of(load),
          [this](const Layer& layer, ValueSpecs inputs, Backward backward) {
            return measured([&] { return time_layer(layer, inputs, backward, load_); });
          },
          [this](const NetworkPart& part, std::int64_t rows) {
            return measured([&] { return time_part(part, rows, load_); });
          }) {
  if (file_.empty() || !std::filesystem::exists(file_)) {
    return;
  }
  try {
    if (!profile_.read(read_file(file_))) {
      problems_.push_back(
          fmt::format("{} holds no times of layers of this machine; they are measured anew", file_.string()));
    }
  } catch (const Error& error) {
    problems_.push_back(fmt::format("{}; layers are measured anew", error.what()));
  }
}

std::optional<LayerTime> MeasuredLayers::measured(const std::function<std::optional<LayerTime>()>& measure) {
  if (before_measuring_) {
    before_measuring_(profile_.measured());
  }
  try {
    return measure();
  } catch (const std::exception&) {
    return std::nullopt;  // there is not the memory for it
  }
}

std::string MeasuredLayers::finish(std::vector<std::string>& notes) {
  if (profile_.measured() > 0 && !file_.empty()) {
    try {
      std::filesystem::create_directories(file_.parent_path());
      if (std::filesystem::exists(file_)) {
        (void)profile_.read(read_file(file_));  // what others have measured meanwhile
      }
      write_file_atomically(file_, profile_.text());
    } catch (const std::exception& error) {
      problems_.push_back(fmt::format("times of layers are not kept: {}", error.what()));
    }
  }
  notes.insert(notes.end(), problems_.begin(), problems_.end());
  std::string text = "measured on this machine with " + text_of(load_);
  if (profile_.measured() > 0) {
    text += fmt::format(", {} of them now", profile_.measured());
  }
  if (profile_.not_measured() > 0) {
    text += fmt::format("; {} too large or with too little known, by their operations", profile_.not_measured());
  }
  return text;
}

}  // namespace distbelief
