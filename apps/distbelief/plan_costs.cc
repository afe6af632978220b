#include "plan_costs.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "exec/layer_timer.h"
#include "metrics/machine.h"

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

constexpr std::string_view kLinkHeading = "distbelief link 1\n";

/// Heading, latency and bandwidth, a line each.
std::optional<LinkSpeed> link_in(std::string_view text) {
  LinkSpeed link;
  if (!text.starts_with(kLinkHeading) || !text.ends_with('\n')) {
    return std::nullopt;
  }
  text.remove_prefix(kLinkHeading.size());
  const char* const end = text.data() + text.size() - 1;
  const auto latency = std::from_chars(text.data(), end, link.latency);
  if (latency.ec != std::errc() || latency.ptr == end || *latency.ptr != '\n') {
    return std::nullopt;
  }
  const auto bandwidth = std::from_chars(latency.ptr + 1, end, link.bandwidth);
  const bool sound = bandwidth.ec == std::errc() && bandwidth.ptr == end && std::isfinite(link.latency) &&
                     std::isfinite(link.bandwidth) && link.latency > 0 && link.bandwidth > 0;
  return sound ? std::optional(link) : std::nullopt;
}

}  // namespace

std::optional<LinkSpeed> measured_link(const std::filesystem::path& folder, std::vector<std::string>& notes) {
  const std::filesystem::path file = folder.empty() ? folder : folder / file_name("link", this_machine().cpu);
  try {
    if (!file.empty() && std::filesystem::exists(file)) {
      if (const std::optional<LinkSpeed> known = link_in(read_file(file))) {
        return known;
      }
      notes.push_back(fmt::format("{} does not say how fast links are; they are measured anew", file.string()));
    }
  } catch (const std::exception& error) {
    notes.push_back(fmt::format("{}; links are measured anew", error.what()));
  }
  const std::optional<LinkSpeed> link = probe_local_link();
  if (link && !file.empty()) {
    try {
      std::filesystem::create_directories(folder);
      write_file_atomically(file, fmt::format("{}{:.4g}\n{:.4g}\n", kLinkHeading, link->latency, link->bandwidth));
    } catch (const std::exception& error) {
      notes.push_back(fmt::format("the speed of links is not kept: {}", error.what()));
    }
  }
  return link;
}

std::filesystem::path cache_folder(const std::vector<std::string>& environment) {
  const std::string cache = value_in(environment, "XDG_CACHE_HOME");
  const std::string home = value_in(environment, "HOME");
  if (cache.starts_with('/')) {  // as its specification wants it
    return std::filesystem::path(cache) / "distbelief";
  }
  return home.empty() ? std::filesystem::path() : std::filesystem::path(home) / ".cache" / "distbelief";
}

MeasuredLayers::MeasuredLayers(std::filesystem::path folder, int threads, bool shows)
    : file_(folder.empty() ? folder : folder / file_name("layers", this_machine().cpu)),
      threads_(threads),
      shows_(shows),
      profile_(this_machine().cpu, threads, [this](const Layer& layer, ValueSpecs inputs, Backward backward) {
        if (shows_) {
          fmt::print("\rmeasuring layers: {} ", profile_.measured() + 1);
          std::fflush(stdout);
        }
        return time_layer(layer, inputs, backward, threads_);
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

std::string MeasuredLayers::finish(std::vector<std::string>& notes) {
  if (shows_ && profile_.measured() > 0) {
    fmt::print("\r\033[K");
  }
  if (profile_.measured() > 0 && !file_.empty()) {
    try {
      std::filesystem::create_directories(file_.parent_path());
      write_file_atomically(file_, profile_.text());
    } catch (const std::exception& error) {
      problems_.push_back(fmt::format("times of layers are not kept: {}", error.what()));
    }
  }
  notes.insert(notes.end(), problems_.begin(), problems_.end());
  std::string text = fmt::format("measured on this machine with {} thread{}", threads_, threads_ == 1 ? "" : "s");
  if (profile_.measured() > 0) {
    text += fmt::format(", {} of them now", profile_.measured());
  }
  if (profile_.not_measured() > 0) {
    text += fmt::format("; {} too large or with too little known, by their operations", profile_.not_measured());
  }
  return text;
}

}  // namespace distbelief
