#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "transport/address.h"

namespace distbelief {

/// What a run folder says about the job that runs in it: how to reach the coordinator and what to prove with.
struct JobFile {
  Address address = {};
  std::vector<Address> alternatives = {};  ///< the same coordinator, for machines that do not reach it at `address`
  std::string token = {};
  int pid = 0;  ///< of the coordinator
  std::uint64_t term = 0;
  std::string started = {};  ///< "2026-01-31T12:00:00Z"

  /// `address`, then the alternatives.
  std::vector<Address> addresses() const;
  friend bool operator==(const JobFile&, const JobFile&) = default;
};

/// As it stands in job.json, and in a store beside it.
std::string job_file_text(const JobFile& job);
/// Throws FileError that names `source` and what is wrong with it.
JobFile parse_job_file(const std::string& text, const std::string& source);

/// RUN/job.json.
std::filesystem::path job_file_path(const std::filesystem::path& run_folder);

/// Appears whole, and is readable by its owner only. Throws FileError.
void write_job_file(const std::filesystem::path& run_folder, const JobFile& job);

/// Throws FileError that names the file and what is wrong with it; when there is none, that no job runs here.
JobFile read_job_file(const std::filesystem::path& run_folder);

/// Makes way for a new job: a job.json that a killed coordinator left goes. Throws InputError when its coordinator
/// still answers, for then a job runs here; FileError as read_job_file().
void remove_stale_job_file(const std::filesystem::path& run_folder);

/// 128 bits from the system's source of randomness, as 32 hexadecimal digits.
std::string make_token();

}  // namespace distbelief
