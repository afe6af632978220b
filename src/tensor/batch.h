#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/shape.h"

namespace distbelief {

/// What one sample of a data set looks like. The input is dense floats of `input` (channels, height, width for images),
/// integers of that shape when `indices`, or, when `sparse`, a row of a sparse matrix with input.elements() columns.
/// The target is a class in [0, classes) when classes > 0, otherwise `targets` floats.
struct SampleSpec {
  Shape input;
  bool sparse = false;
  bool indices = false;
  std::int64_t classes = 0;
  std::int64_t targets = 0;
};

/// Rows of a sparse matrix: row i has entries [offsets[i], offsets[i+1]) of columns and values; columns rise in a row.
struct SparseRows {
  std::vector<std::int64_t> offsets = {0};
  std::vector<std::int32_t> columns;
  std::vector<float> values;
};

/// Samples that are computed together: what a loader hands to a replica. Which vectors are filled follows from the
/// SampleSpec; all have size() rows.
struct Batch {
  std::vector<std::uint64_t> ids;  ///< which sample of the data set each row is
  std::uint64_t epoch = 0;
  std::vector<float> dense;           ///< rows of the input
  std::vector<std::int32_t> indices;  ///< rows of integers, for embeddings
  SparseRows sparse;
  std::vector<std::int32_t> classes;
  std::vector<float> targets;

  std::int64_t size() const { return static_cast<std::int64_t>(ids.size()); }
};

}  // namespace distbelief
