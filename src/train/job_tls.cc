#include "train/job_tls.h"

#include "base/error.h"
#include "transport/socket/tls_stream.h"

namespace distbelief {

std::optional<TlsOptions> tls_of(const RunConfig& config) {
  if (config.tls_cert.empty() && config.tls_key.empty() && config.tls_ca.empty()) {
    return std::nullopt;
  }
  for (const auto& [name, file] :
       {std::pair{"cert", &config.tls_cert}, {"key", &config.tls_key}, {"ca", &config.tls_ca}}) {
    if (file->empty()) {
      throw InputError(fmt::format("TLS needs all of --tls-cert, --tls-key and --tls-ca; --tls-{} is missing", name));
    }
  }
  return TlsOptions{.cert = config.tls_cert, .key = config.tls_key, .ca = config.tls_ca};
}

void settle_tls(RunConfig& config) {
  const std::optional<TlsOptions> tls = tls_of(config);
  if (!tls) {
    return;
  }
  check_tls(*tls);
  for (std::string* file : {&config.tls_cert, &config.tls_key, &config.tls_ca}) {
    *file = std::filesystem::absolute(*file).lexically_normal().string();
  }
}

}  // namespace distbelief
