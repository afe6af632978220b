#include "cluster/job_file.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "transport/socket/message_client.h"

namespace distbelief {
namespace {

/// Throws FileError: `source`, then what the parser or a missing key complains about.
template <typename Read>
auto read_json(const std::string& text, std::string_view source, Read&& read) {
  try {
    return read(parse_json(text));
  } catch (const JsonError& error) {
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

std::string job_file_text(const JobFile& job) {
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
  return json_text(json, 2) + "\n";
}

JobFile parse_job_file(const std::string& text, const std::string& source) {
  return read_json(text, source, [](const Json& json) {
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

void write_job_file(const std::filesystem::path& run_folder, const JobFile& job) {
  write_file_atomically(job_file_path(run_folder), job_file_text(job), 0600);
}

JobFile read_job_file(const std::filesystem::path& run_folder) {
  const auto path = job_file_path(run_folder);
  if (!std::filesystem::exists(path)) {
    throw FileError(fmt::format("{}: not there: no job runs in this folder", path.string()));
  }
  return parse_job_file(read_file(path), path.string());
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

}  // namespace distbelief
