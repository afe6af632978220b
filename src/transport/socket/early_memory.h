#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace distbelief {

/// Memory for messages that come before anybody waits for them. Long ones get pages of their own, and the pages of a
/// few are kept for those that come next: from the heap, where other things would come to lie between them, they make a
/// process up to half as large again; and to get new pages for each costs more than to copy it.
///
/// One thread. Outlives its pieces.
class EarlyMemory {
 public:
  /// So many bytes are long.
  static constexpr std::size_t kLong = std::size_t{256} << 10;
  /// So many pieces are kept, the largest that there were.
  static constexpr std::size_t kMostSpare = 2;

  class GiveBack {
   public:
    GiveBack() = default;
    GiveBack(EarlyMemory* owner, std::size_t bytes) : owner_(owner), bytes_(bytes) {}
    void operator()(std::byte* data) const { owner_->give_back(data, bytes_); }

   private:
    EarlyMemory* owner_ = nullptr;
    std::size_t bytes_ = 0;
  };
  using Piece = std::unique_ptr<std::byte[], GiveBack>;

  EarlyMemory() = default;
  EarlyMemory(const EarlyMemory&) = delete;
  EarlyMemory& operator=(const EarlyMemory&) = delete;
  ~EarlyMemory();

  /// At least so many bytes, of any value. Throws std::bad_alloc.
  Piece take(std::size_t bytes);
  /// Bytes of long pieces that nobody has.
  std::size_t spare_bytes() const;

 private:
  struct Pages {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };

  void give_back(std::byte* data, std::size_t bytes);

  std::vector<Pages> spare_;  // smallest first
};

}  // namespace distbelief
