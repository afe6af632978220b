#pragma once

#include <filesystem>

namespace distbelief {

/// Files (PEM) for connections that are encrypted and on which each end proves that `ca` knows it. Host names are not
/// compared: whoever has a certificate of this authority belongs to the job.
struct TlsOptions {
  std::filesystem::path cert;  ///< this process's certificate, or a chain that begins with it
  std::filesystem::path key;   ///< its private key
  std::filesystem::path ca;    ///< the authority (one or more) that the other end's certificate must come from
};

}  // namespace distbelief
