#pragma once

#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "data/formats/text_rows.h"

namespace distbelief {

/// The body of the fuzz targets of formats with one sample a line. The first byte chooses the options: labels or not,
/// kind of target, in memory or parsed on read; the rest is the file.
template <typename Open>
int fuzz_text_rows(const std::uint8_t* data, std::size_t size, const Open& open) {
  if (size == 0) {
    return 0;
  }
  const FileBytes file{"file", nullptr, std::as_bytes(std::span(data + 1, size - 1))};
  TextOptions options;
  options.labelled = (data[0] & 1U) != 0;
  options.target = static_cast<TargetKind>((data[0] >> 1U) % 3);
  options.memory_limit = (data[0] & 128U) != 0 ? 16 : 1 << 20;
  try {
    const auto set = open(file, options);
    Batch batch;
    const std::uint64_t ids[] = {set->size() - 1, 0};
    if (set->spec().sparse || set->spec().input.elements() < 1 << 20) {
      set->read(ids, 0, batch);
    }
    options.like = set.get();  // the same file must fit itself
    if (set->size() > 0 && open(file, options)->size() != set->size()) {
      __builtin_trap();
    }
  } catch (const FileError&) {
  }
  return 0;
}

}  // namespace distbelief
