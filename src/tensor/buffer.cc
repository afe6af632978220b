#include "tensor/buffer.h"

#include <sys/mman.h>

#include <cstring>
#include <new>

namespace distbelief {

namespace {
constexpr std::size_t kHugePage = std::size_t{2} << 20;
}

Buffer::Buffer(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) {
    return;
  }
  const bool large = bytes >= 2 * kHugePage;
  const std::size_t alignment = large ? kHugePage : 64;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(alignment, rounded));
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  if (large) {
    ::madvise(memory, rounded, MADV_HUGEPAGE);  // fewer TLB misses; a wish, so its failure is no failure
  }
  data_.reset(memory);
}

Buffer Buffer::zeroed(std::size_t bytes) {
  Buffer buffer(bytes);
  if (bytes > 0) {
    std::memset(buffer.data(), 0, bytes);
  }
  return buffer;
}

}  // namespace distbelief
