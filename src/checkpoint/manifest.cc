#include "checkpoint/manifest.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/json.h"

namespace distbelief {
namespace {

constexpr std::uint64_t kFormatVersion = 1;

/// Reads keys of one object; a complaint names the file and the key.
class KeyReader {
 public:
  KeyReader(const Json& object, const std::string& file, std::string prefix)
      : object_(object), file_(file), prefix_(std::move(prefix)) {
    if (!object.is_object()) {
      throw FileError(prefix_.empty() ? fmt::format("{}: expected a JSON object", file)
                                      : fmt::format("{}: {}: expected an object", file, prefix_));
    }
  }

  [[noreturn]] void complain(const std::string& key, std::string_view expected) const {
    throw FileError(fmt::format("{}: {}{}: expected {}", file_, prefix_.empty() ? "" : prefix_ + ".", key, expected));
  }

  const Json& value(const std::string& key, std::string_view expected) const {
    const auto found = object_.find(key);
    if (found == object_.end()) {
      complain(key, fmt::format("{}, found nothing", expected));
    }
    return *found;
  }

  std::uint64_t natural(const std::string& key) const {
    constexpr std::string_view kExpected = "a non-negative integer";
    const Json& json = value(key, kExpected);
    if (!json.is_number_unsigned()) {
      complain(key, kExpected);
    }
    return json.get<std::uint64_t>();
  }

  std::int64_t count(const std::string& key) const {
    const std::uint64_t number = natural(key);
    if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      complain(key, "an integer below 2^63");
    }
    return static_cast<std::int64_t>(number);
  }

  std::string text(const std::string& key) const {
    const Json& json = value(key, "a string");
    if (!json.is_string()) {
      complain(key, "a string");
    }
    return json.get<std::string>();
  }

  KeyReader object(const std::string& key) const { return {value(key, "an object"), file_, key}; }
  const Json& json() const { return object_; }

 private:
  const Json& object_;
  const std::string& file_;
  std::string prefix_;
};

std::map<std::string, std::uint64_t> read_counts(const KeyReader& reader) {
  std::map<std::string, std::uint64_t> counts;
  for (const auto& [key, value] : reader.json().items()) {
    counts[key] = reader.natural(key);
  }
  return counts;
}

std::map<std::uint64_t, std::uint64_t> read_leases(const KeyReader& reader) {
  std::map<std::uint64_t, std::uint64_t> leases;
  for (const auto& [key, value] : reader.json().items()) {
    std::uint64_t lease = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), lease);
    if (error != std::errc{} || end != key.data() + key.size()) {
      reader.complain(key, "the number of a lease as key");
    }
    leases[lease] = reader.natural(key);
  }
  return leases;
}

std::map<std::string, FileSummary, std::less<>> read_files(const KeyReader& reader, const std::string& file) {
  std::map<std::string, FileSummary, std::less<>> files;
  for (const auto& [name, value] : reader.json().items()) {
    if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos) {
      reader.complain(name, "the plain name of a file");
    }
    const KeyReader facts(value, file, "files." + name);
    const std::uint64_t crc = facts.natural("crc32c");
    if (crc > 0xFFFFFFFFU) {
      facts.complain("crc32c", "a number of 32 bits");
    }
    files[name] = {facts.natural("bytes"), static_cast<std::uint32_t>(crc)};
  }
  return files;
}

Json object_of(const std::map<std::uint64_t, std::uint64_t>& leases) {
  Json json = Json::object();
  for (const auto& [lease, seq] : leases) {
    json[std::to_string(lease)] = seq;
  }
  return json;
}

Json object_of(const std::map<std::string, std::uint64_t>& counts) {
  Json json = Json::object();
  json.update(counts);
  return json;
}

}  // namespace

std::string manifest_text(const CheckpointManifest& manifest) {
  Json extra = try_parse_json(manifest.extra);
  check(!extra.is_discarded(), "extra is JSON");
  Json json;
  json["format"] = "distbelief checkpoint";
  json["version"] = kFormatVersion;
  json["step"] = manifest.step;
  json["epoch"] = manifest.epoch;
  json["position"] = manifest.position;
  json["seed"] = manifest.seed;
  json["model_digest"] = manifest.model_digest;
  json["score"] = number_or_null(manifest.score);
  json["updates"] = object_of(manifest.updates);
  json["next_seq"] = object_of(manifest.next_seq);
  json["samples"] = object_of(manifest.samples);
  json["extra"] = std::move(extra);
  json["files"] = Json::object();
  for (const auto& [name, summary] : manifest.files) {
    json["files"][name] = {{"bytes", summary.bytes}, {"crc32c", summary.crc32c}};
  }
  return json_text(json, 2) + "\n";
}

CheckpointManifest parse_manifest(std::string_view text, const std::string& file) {
  Json json;
  try {
    json = parse_json(text);
  } catch (const Json::parse_error& error) {
    throw FileError(fmt::format("{}: expected JSON, found an error at byte {}", file, error.byte));
  } catch (const Json::out_of_range&) {
    throw FileError(fmt::format("{}: expected JSON, found a number too large for it", file));
  }
  const KeyReader reader(json, file, "");
  if (const std::uint64_t version = reader.natural("version"); version != kFormatVersion) {
    reader.complain("version", fmt::format("{}, found {}", kFormatVersion, version));
  }
  CheckpointManifest manifest;
  manifest.step = reader.count("step");
  manifest.epoch = reader.count("epoch");
  manifest.position = reader.count("position");
  manifest.seed = reader.natural("seed");
  manifest.model_digest = reader.text("model_digest");
  if (const Json& score = reader.value("score", "a number or null"); score.is_number()) {
    manifest.score = score.get<double>();
  } else if (!score.is_null()) {
    reader.complain("score", "a number or null");
  }
  manifest.updates = read_counts(reader.object("updates"));
  manifest.next_seq = read_leases(reader.object("next_seq"));
  manifest.samples = read_counts(reader.object("samples"));
  manifest.extra = json_text(reader.value("extra", "a value"));
  manifest.files = read_files(reader.object("files"), file);
  return manifest;
}

}  // namespace distbelief
