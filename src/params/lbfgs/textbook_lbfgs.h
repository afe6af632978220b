#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "params/lbfgs/wolfe_search.h"

namespace distbelief {

/// For tests: L-BFGS as it stands in a textbook, in one place and in double. Objectives at the start and after each
/// iteration. `evaluate` gives the objective at a point and writes its gradient; it may move the point to where it
/// evaluates, as floats do.
inline std::vector<double> textbook_lbfgs(
    std::vector<double> x, const std::function<double(std::vector<double>&, std::vector<double>&)>& evaluate,
    int iterations, std::size_t history) {
  using Point = std::vector<double>;
  const auto dot = [](const Point& a, const Point& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  const auto add = [](Point a, double factor, const Point& b) {
    for (std::size_t i = 0; i < a.size(); ++i) {
      a[i] += factor * b[i];
    }
    return a;
  };
  Point gradient(x.size());
  double value = evaluate(x, gradient);
  std::vector<double> found = {value};
  std::vector<std::pair<Point, Point>> pairs;
  for (int iteration = 0; iteration < iterations; ++iteration) {
    Point direction = add(Point(x.size()), -1, gradient);
    std::vector<double> shares;
    for (auto pair = pairs.rbegin(); pair != pairs.rend(); ++pair) {
      shares.push_back(dot(pair->first, direction) / dot(pair->first, pair->second));
      direction = add(direction, -shares.back(), pair->second);
    }
    if (!pairs.empty()) {
      const auto& [step, change] = pairs.back();
      direction = add(direction, dot(step, change) / dot(change, change) - 1, direction);
    }
    for (const auto& [step, change] : pairs) {
      direction = add(direction, shares.back() - dot(change, direction) / dot(step, change), step);
      shares.pop_back();
    }
    const double first = pairs.empty() ? std::min(1.0, 1 / std::sqrt(dot(gradient, gradient))) : 1;
    WolfeSearch search(value, dot(gradient, direction), first, {});
    Point next;
    Point next_gradient(x.size());
    while (search.status() == WolfeSearch::Status::searching) {
      next = add(x, search.trial(), direction);
      value = evaluate(next, next_gradient);
      search.tried(value, dot(next_gradient, direction));
    }
    pairs.emplace_back(add(next, -1, x), add(next_gradient, -1, gradient));
    if (pairs.size() > history) {
      pairs.erase(pairs.begin());
    }
    x = next;
    gradient = next_gradient;
    found.push_back(value);
  }
  return found;
}

}  // namespace distbelief
