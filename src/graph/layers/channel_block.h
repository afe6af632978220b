#pragma once

#include <cstdint>
#include <cstring>

#include "tensor/engine.h"

namespace distbelief {

// oneDNN's layout of images for AVX2: eight channels of one pixel lie together. For kernels of our own on it.

constexpr std::int64_t kChannelBlock = 8;

/// Eight channels of one pixel; the compiler turns it into whatever the machine has.
using ChannelBlock = float __attribute__((vector_size(32)));

// By reference: vectors wider than the baseline's do not travel in registers between functions.
__attribute__((always_inline)) inline void load(const float* from, ChannelBlock& block) {
  std::memcpy(&block, from, sizeof block);
}
__attribute__((always_inline)) inline void store(float* to, const ChannelBlock& block) {
  std::memcpy(to, &block, sizeof block);
}

/// batch × channels × height × width in such blocks.
inline dnnl::memory::desc channel_blocked_layout(const Shape& image) {
  return {dnnl::memory::dims(image.dims().begin(), image.dims().end()), dnnl::memory::data_type::f32,
          dnnl::memory::format_tag::nChw8c};
}

}  // namespace distbelief
