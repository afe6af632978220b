#include "train/job_store.h"

#include <memory>

#include "cluster/etcd_store.h"
#include "train/job_tls.h"

namespace distbelief {
namespace {

constexpr std::chrono::seconds kStoreAnswerPatience{5};

}  // namespace

std::optional<StoreUrl> store_of(const RunConfig& config) {
  return config.store.empty() ? std::nullopt : std::optional(StoreUrl::parse(config.store));
}

void check_store(const RunConfig& config) {
  if (const std::optional<StoreUrl> url = store_of(config)) {
    EtcdStore::check_free(*url, tls_of(config), Clock::now() + kStoreAnswerPatience);
  }
}

std::function<std::optional<JobFile>(Clock::time_point)> coordinator_finder(const RunConfig& config) {
  const std::optional<StoreUrl> url = store_of(config);
  if (!url) {
    return {};
  }
  // Shared because functions are copied; it knows nothing but addresses.
  return [client = std::make_shared<EtcdClient>(*url, tls_of(config))](Clock::time_point deadline) {
    return find_leader(*client, deadline);
  };
}

JobFile running_job(const std::filesystem::path& folder, const RunConfig& config) {
  if (const auto find = coordinator_finder(config)) {
    if (std::optional<JobFile> job = find(Clock::now() + kStoreAnswerPatience)) {
      return *job;
    }
  }
  return read_job_file(folder);
}

}  // namespace distbelief
