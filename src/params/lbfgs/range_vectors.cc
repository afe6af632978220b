#include "params/lbfgs/range_vectors.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "tensor/vector_ops.h"

namespace distbelief {

RangeVectors::RangeVectors(const ParameterTable& table, Range range, std::span<float> values)
    : range_(range), values_(values), trained_(float_buffer(range.size())) {
  check(std::ssize(values) == range.size(), "a range has a value for each place");
  const std::span<float> trained = trained_.as<float>();
  const std::span<float> decaying = vector(kDecaying);
  std::ranges::fill(trained, 0.0F);
  for (const ParameterEntry& entry : table.entries()) {
    if (entry.frozen || entry.spec.kind == ParameterKind::averaged) {
      continue;
    }
    const std::int64_t begin = std::max(entry.range.begin, range.begin);
    const std::int64_t end = std::min(entry.range.end, range.end);
    for (std::int64_t place = begin; place < end; ++place) {
      trained[static_cast<std::size_t>(place - range.begin)] = 1;
      decaying[static_cast<std::size_t>(place - range.begin)] = entry.spec.decays ? 1 : 0;
    }
  }
}

bool RangeVectors::are_orders(std::span<const VectorOrder> orders) {
  return std::ranges::all_of(orders, [](const VectorOrder& order) {
    if (order.kind > VectorOrder::Kind::dot || order.to >= kMostVectors || order.from >= kMostVectors) {
      return false;
    }
    const bool reads_only = order.kind == VectorOrder::Kind::dot;
    const bool needs_two = order.kind == VectorOrder::Kind::add || order.kind == VectorOrder::Kind::multiply ||
                           order.kind == VectorOrder::Kind::axpy;
    return (order.to != kDecaying || reads_only) && (order.to != order.from || !needs_two);
  });
}

std::span<float> RangeVectors::vector(VectorName name) {
  if (name == kValues) {
    return values_;
  }
  const auto [place, is_new] = vectors_.try_emplace(name);
  if (is_new) {
    place->second = float_buffer(range_.size());
    std::ranges::fill(place->second.as<float>(), 0.0F);
  }
  return place->second.as<float>();
}

void RangeVectors::run(std::span<const VectorOrder> orders, std::span<double> dots) {
  check(are_orders(orders), "what is carried out are orders");
  const std::int64_t count = range_.size();
  std::size_t told = 0;
  for (const VectorOrder& order : orders) {
    float* to = vector(order.to).data();
    const float* from = vector(order.from).data();
    const auto factor = static_cast<float>(order.factor);
    switch (order.kind) {
      case VectorOrder::Kind::copy:
        if (to != from) {
          std::copy_n(from, count, to);
        }
        break;
      case VectorOrder::Kind::scale:
        if (factor == 0) {
          std::fill_n(to, count, 0.0F);
        } else {
          scale(factor, to, count);
        }
        break;
      case VectorOrder::Kind::add:
        axpy(1, from, to, count);
        break;
      case VectorOrder::Kind::multiply:
        multiply(from, to, count);
        break;
      case VectorOrder::Kind::axpy:
        axpy(factor, from, to, count);
        break;
      case VectorOrder::Kind::dot:
        check(told < dots.size(), "every dot product has a place");
        dots[told++] += dot_in_double(to, from, count);
        break;
    }
  }
  check(told == dots.size(), "every place has a dot product");
}

void RangeVectors::add_to_gradient(std::span<const float> part, float scale) {
  check(std::ssize(part) == range_.size(), "a part covers the range");
  add_to_gradient_at(0, part, scale);
}

void RangeVectors::add_to_gradient(const GradientRuns& part, float scale) {
  std::size_t given = 0;
  for (const FloatRun& run : part.places.runs) {
    add_to_gradient_at(run.begin - part.places.origin, part.floats.subspan(given, run.count), scale);
    given += run.count;
  }
}

void RangeVectors::add_to_gradient_at(std::size_t place, std::span<const float> part, float scale) {
  const std::span<float> gradient = vector(kGradient).subspan(place, part.size());
  const std::span<const float> trained = trained_.as<float>().subspan(place, part.size());
  for (std::size_t i = 0; i < part.size(); ++i) {
    gradient[i] += trained[i] != 0 ? scale * part[i] : 0.0F;  // what is not trained may hold anything
  }
}

void RangeVectors::visit_state(StateVisitor& visitor, bool all) {
  const auto is_visited = [all](VectorName name) { return all || name != kGradient; };
  std::vector<std::uint64_t> names;
  for (const auto& [name, floats] : vectors_) {
    if (is_visited(name)) {
      names.push_back(name);
    }
  }
  visitor.numbers("vectors", names);
  std::erase_if(vectors_, [&](const auto& entry) {
    return is_visited(entry.first) && entry.first != kDecaying &&
           !std::ranges::count(names, std::uint64_t{entry.first});
  });
  for (const std::uint64_t name : names) {
    if (name > kValues && name < kMostVectors && name != kDecaying) {
      visitor.floats("vector_" + std::to_string(name), vector(static_cast<VectorName>(name)));
    }
  }
}

}  // namespace distbelief
