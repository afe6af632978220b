#pragma once

#include <cstddef>

#include "graph/value.h"

namespace distbelief {

/// A copy of memory into another layout, bound once and run many times; nothing at all when the layouts are equal.
class Reordering {
 public:
  Reordering() = default;
  Reordering(const Engine& engine, const dnnl::memory::desc& from, const dnnl::memory::desc& to);

  bool needed() const { return needed_; }
  /// Bytes of the destination, 0 when not needed.
  std::size_t bytes() const { return needed_ ? to_.get_size() : 0; }
  /// `to` is ignored when not needed.
  void bind(const Engine& engine, const void* from, void* to);
  void run(const Engine& engine);

 private:
  bool needed_ = false;
  dnnl::memory::desc from_;
  dnnl::memory::desc to_;
  dnnl::reorder primitive_;
  dnnl::memory source_;
  dnnl::memory destination_;
};

}  // namespace distbelief
