#pragma once

#include <optional>

#include "config/run_config.h"
#include "transport/tls_options.h"

namespace distbelief {

/// The three files of --tls-cert, --tls-key and --tls-ca; nothing when none is given. Throws InputError when only some
/// are.
std::optional<TlsOptions> tls_of(const RunConfig& config);

/// Makes the files' paths absolute, and throws InputError that names the file when one cannot be used, when key and
/// certificate do not fit, or when the certificate does not come from the authority.
void settle_tls(RunConfig& config);

}  // namespace distbelief
