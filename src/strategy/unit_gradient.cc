#include "strategy/unit_gradient.h"

#include <algorithm>

#include "base/check.h"
#include "tensor/vector_ops.h"

namespace distbelief {

UnitGradient::UnitGradient(const ParameterTable& table)
    : table_(table), sum_(Buffer::zeroed(static_cast<std::size_t>(table.size()) * sizeof(float))) {}

void UnitGradient::add(const SparseGradient& gradient, float factor) {
  check(std::ssize(gradient.floats) == table_.size(), "of the whole flat space");
  const std::scoped_lock lock(mutex_);
  float* const sum = sum_.as<float>().data();
  const auto add_range = [&](std::int64_t begin, std::int64_t count, float times) {
    const float* const part = gradient.floats.data() + begin;
    if (times == 1) {
      distbelief::add(sum + begin, part, sum + begin, count);
    } else {
      axpy(times, part, sum + begin, count);
    }
  };
  for (const ParameterEntry& entry : table_.entries()) {
    if (!entry.frozen && entry.spec.row_floats == 0) {
      add_range(entry.range.begin, entry.range.size(), entry.spec.kind == ParameterKind::averaged ? 1.0F : factor);
    }
  }
  for (const TouchedRows& touched : gradient.touched) {
    if (!touched.parameter->frozen) {
      for (const std::int32_t row : touched.rows) {
        add_range(touched.offset(row), touched.row_floats(), factor);
      }
    }
  }
  ++batches_;
}

std::span<const float> UnitGradient::total() {
  const std::scoped_lock lock(mutex_);
  for (const ParameterEntry& entry : table_.entries()) {
    if (entry.spec.kind == ParameterKind::averaged && batches_ > 1) {
      for (float& observed : sum_.as<float>().subspan(static_cast<std::size_t>(entry.range.begin),
                                                      static_cast<std::size_t>(entry.range.size()))) {
        observed *= 1.0F / static_cast<float>(batches_);
      }
    }
  }
  batches_ = 0;
  return sum_.as<float>();
}

void UnitGradient::clear() {
  const std::scoped_lock lock(mutex_);
  std::ranges::fill(sum_.as<float>(), 0.0F);
  batches_ = 0;
}

}  // namespace distbelief
