#include "data/dataset.h"

#include <algorithm>
#include <cmath>

namespace distbelief {

void start_batch(const SampleSpec& spec, std::span<const std::uint64_t> ids, std::uint64_t epoch, Batch& batch) {
  const std::size_t rows = ids.size();
  const std::size_t elements = static_cast<std::size_t>(spec.input.elements());
  batch.ids.assign(ids.begin(), ids.end());
  batch.epoch = epoch;
  batch.dense.resize(spec.sparse || spec.indices ? 0 : rows * elements);
  batch.indices.resize(spec.indices ? rows * elements : 0);
  batch.sparse.offsets.assign(1, 0);
  batch.sparse.columns.clear();
  batch.sparse.values.clear();
  batch.classes.resize(spec.classes > 0 ? rows : 0);
  batch.targets.resize(spec.classes > 0 ? 0 : rows * static_cast<std::size_t>(spec.targets));
}

Normalization measure_normalization(const Dataset& dataset, std::uint64_t most) {
  const SampleSpec& spec = dataset.spec();
  const std::uint64_t samples = std::min(dataset.size(), most);
  if (spec.sparse || spec.indices || spec.input.rank() == 0 || samples == 0) {
    return {};
  }
  const std::size_t channels = static_cast<std::size_t>(spec.input[0]);
  const std::size_t elements = static_cast<std::size_t>(spec.input.elements());
  const std::size_t plane = elements / channels;
  std::vector<double> sum(channels);
  std::vector<double> squares(channels);
  std::vector<double> shift(channels);  // about the first sample's value, so that the squares do not cancel
  std::vector<std::uint64_t> ids;
  Batch batch;
  constexpr std::uint64_t kPiece = 256;
  for (std::uint64_t first = 0; first < samples; first += kPiece) {
    ids.clear();
    for (std::uint64_t i = first; i < std::min(first + kPiece, samples); ++i) {
      ids.push_back(static_cast<std::uint64_t>(static_cast<long double>(i) * dataset.size() / samples));
    }
    dataset.read(ids, 0, batch);
    if (first == 0) {
      for (std::size_t c = 0; c < channels; ++c) {
        shift[c] = batch.dense[c * plane];
      }
    }
    for (std::size_t row = 0; row < ids.size(); ++row) {
      for (std::size_t c = 0; c < channels; ++c) {
        const float* values = batch.dense.data() + row * elements + c * plane;
        double row_sum = 0;
        double row_squares = 0;
        for (std::size_t i = 0; i < plane; ++i) {
          const double value = values[i] - shift[c];
          row_sum += value;
          row_squares += value * value;
        }
        sum[c] += row_sum;
        squares[c] += row_squares;
      }
    }
  }
  Normalization result;
  const double count = static_cast<double>(samples) * static_cast<double>(plane);
  for (std::size_t c = 0; c < channels; ++c) {
    const double mean = sum[c] / count;
    const double variance = squares[c] / count - mean * mean;
    const bool varies = std::isfinite(variance) && variance > 1e-12 * (squares[c] / count) && variance > 1e-20;
    result.mean.push_back(static_cast<float>(mean + shift[c]));
    result.deviation.push_back(varies ? static_cast<float>(std::sqrt(variance)) : 1.0F);
  }
  return result;
}

}  // namespace distbelief
