#include "tensor/buffer.h"

#include <sys/mman.h>

#include <cstring>
#include <new>

namespace distbelief {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t alignment_of(std::size_t bytes) { return bytes >= 2 * kHugePage ? kHugePage : 64; }

}  // namespace

std::size_t Buffer::memory_of(std::size_t bytes) {
  const std::size_t alignment = alignment_of(bytes);
  return (bytes + alignment - 1) / alignment * alignment;
}

Buffer::Buffer(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) {
    return;
  }
  const std::size_t rounded = memory_of(bytes);
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(alignment_of(bytes), rounded));
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  if (alignment_of(bytes) == kHugePage) {
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
