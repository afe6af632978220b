#include "data/array_dataset.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"

namespace distbelief {

std::size_t bytes_of(ArrayElement type) {
  switch (type) {
    case ArrayElement::u8:
      return 1;
    case ArrayElement::i32:
    case ArrayElement::f32:
      return 4;
    case ArrayElement::i64:
    case ArrayElement::f64:
      return 8;
  }
  check(false, "an element type that exists");
  return 0;
}

ArrayDataset::ArrayDataset(Contents contents) : contents_(std::move(contents)) {
  for (const RowBlock& block : contents_.blocks) {
    size_ += block.rows;
  }
  const SampleSpec& spec = contents_.spec;
  check(spec.classes == 0 || contents_.targets.classes.size() == size_, "one class for each row");
  check(spec.classes > 0 || contents_.targets.values.size() == size_ * static_cast<std::uint64_t>(spec.targets),
        "targets for each row");
  const std::size_t channels = spec.input.rank() == 0 ? 1 : static_cast<std::size_t>(spec.input[0]);
  scale_.assign(channels, contents_.type == ArrayElement::u8 ? 1.0F / 255.0F : 1.0F);
  offset_.assign(channels, 0.0F);
  identity_ = contents_.type != ArrayElement::u8;
}

std::shared_ptr<const ArrayDataset> ArrayDataset::normalized(const Normalization& normalization) const {
  const auto copy = std::make_shared<ArrayDataset>(*this);
  for (std::size_t c = 0; c < scale_.size(); ++c) {
    const std::size_t from = normalization.mean.size() == 1 ? 0 : c;
    const float deviation = normalization.deviation.at(from);
    copy->scale_[c] = scale_[c] / deviation;
    copy->offset_[c] = (offset_[c] - normalization.mean.at(from)) / deviation;
  }
  copy->identity_ = false;
  return copy;
}

const std::byte* ArrayDataset::row(std::uint64_t id) const {
  for (const RowBlock& block : contents_.blocks) {
    if (id < block.rows) {
      return block.first + id * block.stride;
    }
    id -= block.rows;
  }
  check(false, "the sample is one of the data set");
  return nullptr;
}

template <typename T>
void ArrayDataset::gather_floats(std::span<const std::uint64_t> ids, float* out) const {
  const std::size_t channels = scale_.size();
  const std::size_t elements = static_cast<std::size_t>(contents_.spec.input.elements());
  const std::size_t plane = elements / channels;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::byte* from = row(ids[i]);
    if (i + 1 < ids.size()) {
      const std::byte* ahead = row(ids[i + 1]);  // rows come in random order: the hardware cannot foresee the next one
      for (std::size_t line = 0; line < std::min<std::size_t>(elements * sizeof(T), 1024); line += 64) {
        __builtin_prefetch(ahead + line);
      }
    }
    if (plane == 1) {
      for (std::size_t k = 0; k < elements; ++k) {
        out[k] = static_cast<float>(read_little_endian<T>(from + k * sizeof(T))) * scale_[k] + offset_[k];
      }
      out += elements;
      continue;
    }
    for (std::size_t c = 0; c < channels; ++c) {
      const float scale = scale_[c];
      const float offset = offset_[c];
      for (std::size_t k = 0; k < plane; ++k) {
        out[k] = static_cast<float>(read_little_endian<T>(from + k * sizeof(T))) * scale + offset;
      }
      out += plane;
      from += plane * sizeof(T);
    }
  }
}

template <typename T>
void ArrayDataset::gather_indices(std::span<const std::uint64_t> ids, std::int32_t* out) const {
  const std::size_t elements = static_cast<std::size_t>(contents_.spec.input.elements());
  for (const std::uint64_t id : ids) {
    const std::byte* from = row(id);
    for (std::size_t k = 0; k < elements; ++k) {
      const T index = read_little_endian<T>(from + k * sizeof(T));
      if (index < 0 || index > std::numeric_limits<std::int32_t>::max()) {
        throw FileError(fmt::format("sample {}: index {}: expected 0 or more, and below 2^31", id, index));
      }
      *out++ = static_cast<std::int32_t>(index);
    }
  }
}

void ArrayDataset::read(std::span<const std::uint64_t> ids, std::uint64_t epoch, Batch& batch) const {
  const SampleSpec& spec = contents_.spec;
  start_batch(spec, ids, epoch, batch);
  const std::size_t elements = static_cast<std::size_t>(spec.input.elements());
  switch (contents_.type) {
    case ArrayElement::u8:
      gather_floats<std::uint8_t>(ids, batch.dense.data());
      break;
    case ArrayElement::f32:
      if (identity_) {
        for (std::size_t i = 0; i < ids.size(); ++i) {
          std::memcpy(batch.dense.data() + i * elements, row(ids[i]), elements * sizeof(float));
        }
      } else {
        gather_floats<float>(ids, batch.dense.data());
      }
      break;
    case ArrayElement::f64:
      gather_floats<double>(ids, batch.dense.data());
      break;
    case ArrayElement::i32:
      gather_indices<std::int32_t>(ids, batch.indices.data());
      break;
    case ArrayElement::i64:
      gather_indices<std::int64_t>(ids, batch.indices.data());
      break;
  }
  const std::size_t targets = static_cast<std::size_t>(spec.targets);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (spec.classes > 0) {
      batch.classes[i] = contents_.targets.classes[ids[i]];
    } else {
      std::copy_n(contents_.targets.values.data() + ids[i] * targets, targets, batch.targets.data() + i * targets);
    }
  }
}

}  // namespace distbelief
