#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "transport/socket/file_descriptor.h"
#include "transport/socket/stream.h"
#include "transport/tls_options.h"

namespace distbelief {

/// Makes the streams of connections: encrypted (TLS 1.3, both ends verified) with options, plain without. Immutable
/// after the constructor, so any thread may use it; the streams do not need it to live on.
class StreamMaker {
 public:
  enum class Role : std::uint8_t { dials, accepts };

  /// Throws InputError that names the file which cannot be used, and why.
  explicit StreamMaker(const std::optional<TlsOptions>& tls);
  ~StreamMaker();

  std::unique_ptr<Stream> make(FileDescriptor fd, Role role) const;
  bool encrypts() const { return context_ != nullptr; }

 private:
  friend void check_tls(const TlsOptions& options);
  void check_own_certificate(const TlsOptions& options) const;

  struct Context;
  std::unique_ptr<Context> context_;
};

/// Throws InputError as StreamMaker does, and when the certificate does not come from the authority or is out of date:
/// then no process with these files would be let in by another.
void check_tls(const TlsOptions& options);

}  // namespace distbelief
