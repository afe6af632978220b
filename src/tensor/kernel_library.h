#pragma once

#include <string>

namespace distbelief {

/// The oneDNN that this process runs with, for `doctor`.
struct KernelLibrary {
  std::string version;  ///< "2.6.3"
  bool openmp = false;  ///< false: it has threads of its own, which ours do not rule
};

KernelLibrary kernel_library();

}  // namespace distbelief
