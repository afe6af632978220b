#pragma once

#include <span>

#include "tensor/batch.h"
#include "tensor/engine.h"
#include "tensor/shape.h"

namespace distbelief {

/// How the elements of a value are held.
enum class ValueKind { dense, indices, sparse };

/// A value that flows through the graph: batch first. A sparse value has shape {batch, columns}.
struct ValueSpec {
  Shape shape;
  ValueKind kind = ValueKind::dense;

  friend bool operator==(const ValueSpec&, const ValueSpec&) = default;
};
using ValueSpecs = std::span<const ValueSpec>;

/// A value with its place in memory: plain or blocked as oneDNN prefers. Only dense values have a layout.
struct ValueLayout {
  ValueSpec spec;
  dnnl::memory::desc layout;

  bool is_plain() const { return layout == plain_layout(spec.shape); }
  /// Floats of the memory, padding included.
  std::int64_t stored_floats() const { return static_cast<std::int64_t>(layout.get_size() / sizeof(float)); }
};
using ValueLayouts = std::span<const ValueLayout>;

inline ValueLayout plain_value(const Shape& shape) { return {{shape, ValueKind::dense}, plain_layout(shape)}; }

/// Rows [first, first + count) of a sparse batch.
struct SparseView {
  const SparseRows* rows = nullptr;
  std::int64_t first = 0;
  std::int64_t count = 0;

  /// The columns of all entries, repeated as they come.
  std::span<const std::int32_t> columns() const {
    const auto begin = static_cast<std::size_t>(rows->offsets[static_cast<std::size_t>(first)]);
    const auto end = static_cast<std::size_t>(rows->offsets[static_cast<std::size_t>(first + count)]);
    return std::span(rows->columns).subspan(begin, end - begin);
  }
};

}  // namespace distbelief
