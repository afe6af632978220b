#include "train/run_folder.h"

#include <system_error>

#include "base/error.h"

namespace distbelief {
namespace {

bool holds_a_run(const std::filesystem::path& path) { return std::filesystem::exists(path / "run.yaml"); }

std::string plain_name(const std::string& source) {
  std::string name = std::filesystem::path(source).stem().string();
  for (char& c : name) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    c = plain ? c : '-';
  }
  return name.substr(0, 40);
}

}  // namespace

std::filesystem::path free_folder(const std::string& what, const std::string& data_name) {
  const std::string name = plain_name(what) + "-" + plain_name(data_name) + "-";
  std::filesystem::path path;
  for (int number = 1; path.empty() || std::filesystem::exists(path); ++number) {
    path = std::filesystem::path("runs") / (name + std::to_string(number));
  }
  return path;
}

RunFolder RunFolder::create(const RunConfig& config, const std::string& data_name) {
  std::filesystem::path path = config.out;
  if (path.empty()) {
    path = free_folder(config.model, data_name);
  }
  if (holds_a_run(path)) {
    throw InputError(
        fmt::format("--out {0}: there is a run in this folder; choose another, or go on with it: "
                    "distbelief train --resume {0}",
                    path.string()));
  }
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    throw InputError(fmt::format("--out {}: cannot make the folder: {}", path.string(), error.message()));
  }
  return RunFolder(path);
}

RunFolder RunFolder::open(const std::filesystem::path& path) {
  if (!holds_a_run(path)) {
    throw InputError(fmt::format("--resume {}: no run.yaml there; expected the folder of a run", path.string()));
  }
  return RunFolder(path);
}

}  // namespace distbelief
