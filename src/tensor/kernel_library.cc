#include "tensor/kernel_library.h"

#include <dnnl.h>
#include <fmt/format.h>

namespace distbelief {

KernelLibrary kernel_library() {
  const dnnl_version_t* found = dnnl_version();
  return {fmt::format("{}.{}.{}", found->major, found->minor, found->patch), found->cpu_runtime == DNNL_RUNTIME_OMP};
}

}  // namespace distbelief
