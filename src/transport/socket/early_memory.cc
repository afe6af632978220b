#include "transport/socket/early_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <numeric>
#include <utility>

namespace distbelief {
namespace {

constexpr std::size_t kPage = 4096;

}  // namespace

EarlyMemory::~EarlyMemory() {
  for (const Pages& pages : spare_) {
    ::munmap(pages.data, pages.bytes);
  }
}

EarlyMemory::Piece EarlyMemory::take(std::size_t bytes) {
  if (bytes < kLong) {
    return {new std::byte[bytes], GiveBack(this, bytes)};
  }
  const auto found = std::ranges::lower_bound(spare_, bytes, {}, &Pages::bytes);
  if (found != spare_.end()) {
    const Pages pages = *found;
    spare_.erase(found);
    return {pages.data, GiveBack(this, pages.bytes)};
  }
  const std::size_t whole = (bytes + kPage - 1) / kPage * kPage;
  void* data = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    throw std::bad_alloc();
  }
  return {static_cast<std::byte*>(data), GiveBack(this, whole)};
}

void EarlyMemory::give_back(std::byte* data, std::size_t bytes) {
  if (bytes < kLong) {
    delete[] data;
    return;
  }
  spare_.insert(std::ranges::lower_bound(spare_, bytes, {}, &Pages::bytes), Pages{data, bytes});
  if (spare_.size() > kMostSpare) {
    const Pages smallest = spare_.front();
    spare_.erase(spare_.begin());
    ::munmap(smallest.data, smallest.bytes);
  }
}

std::size_t EarlyMemory::spare_bytes() const {
  return std::accumulate(spare_.begin(), spare_.end(), std::size_t{0},
                         [](std::size_t sum, const Pages& pages) { return sum + pages.bytes; });
}

}  // namespace distbelief
