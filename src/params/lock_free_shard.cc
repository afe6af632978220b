#include "params/lock_free_shard.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/multiversion.h"
#include "params/racy_copy.h"
#include "tensor/vector_ops.h"

namespace distbelief {
namespace {

constexpr std::int64_t kPiece = 1024;  // floats
// Floats of rows that are read, changed and written together: enough that calling the rule costs little, few enough
// that another thread seldom writes the same ones in between.
constexpr std::int64_t kPackedRows = 32;
constexpr std::size_t kMostSlots = 2;

std::size_t as_size(std::int64_t value) { return static_cast<std::size_t>(value); }

float relaxed_load(float& shared) { return std::atomic_ref(shared).load(std::memory_order_relaxed); }
void relaxed_store(float& shared, float value) { std::atomic_ref(shared).store(value, std::memory_order_relaxed); }

/// `out` may be `gradient`. NaN stays NaN.
DISTBELIEF_MULTIVERSION
void scale_gradient(const float* gradient, std::int64_t count, float scale, float clip, float* out) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = scale * gradient[i];
  }
  if (clip > 0) {
    for (std::int64_t i = 0; i < count; ++i) {
      const float low = out[i] < -clip ? -clip : out[i];
      out[i] = low > clip ? clip : low;
    }
  }
}

/// Numbers that one thread works on, between reading and writing.
template <std::int64_t kFloats>
struct alignas(64) Workplace {
  float gradient[kFloats];
  float values[kFloats];
  float slots[kMostSlots][kFloats];

  std::array<float*, kMostSlots> slot_pointers() { return {slots[0], slots[1]}; }
};

}  // namespace

LockFreeShard::LockFreeShard(const ParameterTable& table, const UpdateRule& rule, std::span<float> values)
    : table_(table), rule_(rule), values_(values) {
  check(std::ssize(values) == table.size(), "the values are those of the table");
  check(as_size(rule.slots()) <= kMostSlots, "a rule has at most kMostSlots slots");
  for (const ParameterEntry& entry : table.entries()) {
    if (!entry.frozen && entry.spec.row_floats == 0) {
      for (std::int64_t begin = entry.range.begin; begin < entry.range.end; begin += kPiece) {
        pieces_.push_back({{begin, std::min(begin + kPiece, entry.range.end)}, &entry});
      }
    }
  }
  for (int slot = 0; slot < rule.slots(); ++slot) {
    slots_.push_back(float_buffer(table.size()));
    std::ranges::fill(slots_.back().as<float>(), rule.initial_slot_value(slot));
  }
}

void LockFreeShard::read_dense(std::span<float> copy) const {
  for (const Piece& piece : pieces_) {
    racy_read(values_.data() + piece.range.begin, copy.data() + piece.range.begin, piece.range.size());
  }
}

void LockFreeShard::read_rows(std::span<const TouchedRows> touched, std::span<float> copy) const {
  for (const TouchedRows& part : touched) {
    const std::int64_t width = part.row_floats();
    for (const std::int32_t row : part.rows) {
      const std::int64_t begin = part.offset(row);
      for (std::int64_t i = begin; i < begin + width; ++i) {
        copy[as_size(i)] = relaxed_load(values_[as_size(i)]);
      }
    }
  }
}

UpdateReport LockFreeShard::apply(const SparseGradient& gradient, float scale, const UpdateOptions& options,
                                  std::span<float> copy) {
  check(std::ssize(gradient.floats) == table_.size() && std::ssize(copy) == table_.size(), "of the whole flat space");
  UpdateReport report;
  if (options.clip_norm > 0 || options.drop_nonfinite) {
    const double length = std::abs(double{scale}) * norm(gradient);
    report.gradient_norm = length;
    if (!std::isfinite(length)) {
      report.result = ApplyResult::dropped;
      return report;
    }
    if (options.clip_norm > 0 && length > options.clip_norm) {
      scale = static_cast<float>(scale * (options.clip_norm / length));
    }
  }
  const std::uint64_t count = updates_.fetch_add(1, std::memory_order_relaxed) + 1;
  report.version = Version{count};
  const auto step_of = [&](const ParameterEntry& parameter) {
    return UpdateStep{options.rate, parameter.spec.decays ? options.weight_decay : 0.0F, count};
  };
  for (const Piece& piece : pieces_) {
    report.finite =
        apply_dense(piece, gradient.floats, scale, options, step_of(*piece.parameter), copy) && report.finite;
  }
  for (const TouchedRows& touched : gradient.touched) {
    if (!touched.parameter->frozen) {
      report.finite =
          apply_rows(touched, gradient.floats, scale, options, step_of(*touched.parameter)) && report.finite;
    }
  }
  return report;
}

double LockFreeShard::norm(const SparseGradient& gradient) const {
  double sum = 0;
  for (const Piece& piece : pieces_) {
    if (piece.parameter->spec.kind == ParameterKind::optimized) {
      sum += square_sum(gradient.floats.data() + piece.range.begin, piece.range.size());
    }
  }
  for (const TouchedRows& touched : gradient.touched) {
    if (!touched.parameter->frozen) {
      for (const std::int32_t row : touched.rows) {
        sum += square_sum(gradient.floats.data() + touched.offset(row), touched.row_floats());
      }
    }
  }
  return std::sqrt(sum);
}

bool LockFreeShard::apply_dense(const Piece& piece, std::span<const float> gradient, float scale,
                                const UpdateOptions& options, const UpdateStep& step, std::span<float> copy) {
  const std::int64_t begin = piece.range.begin, count = piece.range.size();
  float* values = copy.data() + begin;
  racy_read(values_.data() + begin, values, count);
  if (piece.parameter->spec.kind == ParameterKind::averaged) {
    pull_towards(gradient.data() + begin, piece.parameter->spec.average_rate, values, count);
  } else {
    Workplace<kPiece> work;
    scale_gradient(gradient.data() + begin, count, scale, options.clip_value, work.gradient);
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      racy_read(slots_[slot].as<float>().data() + begin, work.slots[slot], count);
    }
    const auto slots = work.slot_pointers();
    rule_.apply(step, {values, as_size(count)}, {work.gradient, as_size(count)}, std::span(slots).first(slots_.size()));
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      racy_write(work.slots[slot], slots_[slot].as<float>().data() + begin, count);
    }
  }
  racy_write(values, values_.data() + begin, count);
  return all_finite(values, count);
}

bool LockFreeShard::apply_rows(const TouchedRows& touched, std::span<const float> gradient, float scale,
                               const UpdateOptions& options, const UpdateStep& step) {
  const std::int64_t width = touched.row_floats();
  const std::size_t at_once = as_size(std::max<std::int64_t>(1, kPackedRows / width));
  Workplace<kPackedRows> work;
  const auto slots = work.slot_pointers();
  bool finite = true;
  for (std::size_t first = 0; first < touched.rows.size(); first += at_once) {
    const auto rows = touched.rows.subspan(first, std::min(at_once, touched.rows.size() - first));
    for (std::int64_t column = 0; column < width; column += kPackedRows) {  // once, unless a row alone is too long
      const std::int64_t part = std::min(width - column, kPackedRows);
      const std::int64_t packed = part * std::ssize(rows);
      // Calls visit(place in the flat space, place here) for each float.
      const auto for_each_float = [&](const auto& visit) {
        std::int64_t here = 0;
        for (const std::int32_t row : rows) {
          const std::int64_t begin = touched.offset(row) + column;
          for (std::int64_t i = begin; i < begin + part; ++i, ++here) {
            visit(as_size(i), here);
          }
        }
      };
      for_each_float([&](std::size_t there, std::int64_t here) { work.gradient[here] = gradient[there]; });
      scale_gradient(work.gradient, packed, scale, options.clip_value, work.gradient);
      for_each_float([&](std::size_t there, std::int64_t here) { work.values[here] = relaxed_load(values_[there]); });
      for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
        const std::span<float> shared = slots_[slot].as<float>();
        for_each_float(
            [&](std::size_t there, std::int64_t here) { work.slots[slot][here] = relaxed_load(shared[there]); });
      }
      rule_.apply(step, {work.values, as_size(packed)}, {work.gradient, as_size(packed)},
                  std::span(slots).first(slots_.size()));
      for_each_float([&](std::size_t there, std::int64_t here) { relaxed_store(values_[there], work.values[here]); });
      for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
        const std::span<float> shared = slots_[slot].as<float>();
        for_each_float(
            [&](std::size_t there, std::int64_t here) { relaxed_store(shared[there], work.slots[slot][here]); });
      }
      finite = all_finite(work.values, packed) && finite;
    }
  }
  return finite;
}

void LockFreeShard::read_all(std::span<float> copy) const { std::ranges::copy(values_, copy.begin()); }

void LockFreeShard::visit_state(StateVisitor& visitor) {
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    visitor.floats(rule_.slot_name(static_cast<int>(slot)), slots_[slot].as<float>());
  }
  std::uint64_t updates = updates_;
  visitor.number("updates", updates);
  updates_ = updates;
}

}  // namespace distbelief
