#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

namespace distbelief {

/// Memory for numbers, aligned for vector instructions. Not initialised, unless by zeroed(). Movable, not copyable.
class Buffer {
 public:
  Buffer() = default;
  /// Throws std::bad_alloc.
  explicit Buffer(std::size_t bytes);
  static Buffer zeroed(std::size_t bytes);
  /// What one of so many bytes takes of the machine's memory: large ones are whole huge pages.
  static std::size_t memory_of(std::size_t bytes);

  std::size_t bytes() const { return bytes_; }
  std::byte* data() const { return data_.get(); }
  template <typename T = float>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(data_.get()), bytes_ / sizeof(T)};
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t bytes_ = 0;
};

inline Buffer float_buffer(std::int64_t count) { return Buffer(static_cast<std::size_t>(count) * sizeof(float)); }

}  // namespace distbelief
