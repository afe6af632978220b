#include "cluster/job_file.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "transport/socket/message_client.h"

namespace distbelief {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kTermName = "coordinator.json";

/// Throws FileError: `source`, then what the parser or a missing key complains about.
template <typename Read>
auto read_json(const std::string& text, std::string_view source, Read&& read) {
  try {
    return read(Json::parse(text));
  } catch (const Json::exception& error) {
    throw FileError(fmt::format("{}: {}", source, error.what()));
  } catch (const InputError& error) {
    throw FileError(fmt::format("{}: {}", source, error.what()));
  }
}

}  // namespace

std::filesystem::path job_file_path(const std::filesystem::path& run_folder) { return run_folder / "job.json"; }

std::vector<Address> JobFile::addresses() const {
  std::vector<Address> all = {address};
  all.insert(all.end(), alternatives.begin(), alternatives.end());
  return all;
}

void write_job_file(const std::filesystem::path& run_folder, const JobFile& job) {
  Json alternatives = Json::array();
  for (const Address& address : job.alternatives) {
    alternatives.push_back(address.text());
  }
  const Json json = {{"address", job.address.text()},
                     {"alternatives", alternatives},
                     {"token", job.token},
                     {"pid", job.pid},
                     {"term", job.term},
                     {"started", job.started}};
  write_file_atomically(job_file_path(run_folder), json_text(json, 2) + "\n", 0600);
}

JobFile read_job_file(const std::filesystem::path& run_folder) {
  const auto path = job_file_path(run_folder);
  if (!std::filesystem::exists(path)) {
    throw FileError(fmt::format("{}: not there: no job runs in this folder", path.string()));
  }
  return read_json(read_file(path), path.string(), [](const Json& json) {
    JobFile job = {.address = Address::parse(json.at("address").get<std::string>()),
                   .token = json.at("token").get<std::string>(),
                   .pid = json.at("pid").get<int>(),
                   .term = json.at("term").get<std::uint64_t>(),
                   .started = json.at("started").get<std::string>()};
    for (const Json& address : json.value("alternatives", Json::array())) {
      job.alternatives.push_back(Address::parse(address.get<std::string>()));
    }
    return job;
  });
}

void remove_stale_job_file(const std::filesystem::path& run_folder) {
  const std::filesystem::path file = job_file_path(run_folder);
  if (!std::filesystem::exists(file)) {
    return;
  }
  constexpr std::chrono::seconds kAnswerPatience{2};
  const JobFile job = read_job_file(run_folder);
  if (MessageClient::connect(job.address, Clock::now() + kAnswerPatience).client != nullptr) {
    throw InputError(fmt::format("{}: a job runs in this folder already (its coordinator is process {})",
                                 run_folder.string(), job.pid));
  }
  std::filesystem::remove(file);
}

std::string make_token() {
  std::array<unsigned char, 16> bytes{};
  // Up to 256 bytes come whole once the system has started up.
  check(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()), "getrandom gave no bytes");
  std::string token;
  for (const unsigned char byte : bytes) {
    token += fmt::format("{:02x}", byte);
  }
  return token;
}

std::uint64_t begin_term(Store& store) {
  std::uint64_t term = 0;
  if (const auto text = store.read(kTermName)) {
    term = read_json(*text, kTermName, [](const Json& json) { return json.at("term").get<std::uint64_t>(); });
  }
  ++term;
  store.write(kTermName, json_text(Json({{"term", term}})) + "\n", Store::Outlives::the_machine);
  return term;
}

}  // namespace distbelief
