#pragma once

#include "params/state_visitor.h"

namespace distbelief {

/// A search along a direction for a step that satisfies the strong Wolfe conditions: it lessens the objective enough
/// and makes its slope flat enough. Brackets such a step, then narrows the bracket by cubic interpolation (Nocedal and
/// Wright, Numerical Optimization, 2nd edition, algorithms 3.5 and 3.6). Where the objective changes by less than
/// rounding hides, slopes, which are known better, say whether it was lessened (the approximate condition of Hager and
/// Zhang 2005), so that a step may raise it by as little. Who searches evaluates the objective at
/// trial() and says what came of it, until status() is not searching any more. One thread.
class WolfeSearch {
 public:
  struct Options {
    double decrease = 1e-4;  ///< of what the slope at the start promises, at least this share
    double curvature = 0.9;  ///< the slope found is at most this share of that at the start
    double rounding = 1e-7;  ///< of the objective, relative to it
    int most_trials = 20;
    double longest = 1e10;
  };
  enum class Status {
    searching,
    found,   ///< the last trial is the step
    failed,  ///< no trial lessened the objective
  };

  /// One that has not begun.
  explicit WolfeSearch(const Options& options) : options_(options) {}
  /// The objective and its slope, which is negative, at step 0; `first` is the step to try first.
  WolfeSearch(double value, double slope, double first, const Options& options);

  double trial() const { return trial_; }
  Status status() const { return status_; }
  int trials() const { return static_cast<int>(trials_); }
  /// Of the objective at trial(). A value that is not finite is worse than any other.
  void tried(double value, double slope);

  void visit_state(StateVisitor& visitor);

 private:
  struct Point {
    double step = 0;
    double value = 0;
    double slope = 0;
  };
  bool lessens_enough(const Point& point) const;
  bool is_flat_enough(const Point& point) const;
  /// After a bracket was found or narrowed.
  void try_inside();
  /// The conditions cannot be met any more: the best that lessened the objective is tried again, to end there.
  void settle_for_best();
  static double cubic_minimum(const Point& one, const Point& other);

  Options options_;
  Point start_;
  Point before_;  ///< while there is no bracket: the trial before
  Point low_;     ///< of the bracket: the lower end by value, which lessens the objective enough
  Point high_;
  Point best_;  ///< of all that lessened the objective enough; step 0: none
  double trial_ = 0;
  std::uint64_t trials_ = 0;
  std::uint64_t bracketed_ = 0;
  std::uint64_t settling_ = 0;  ///< the trial is the best, once more
  Status status_ = Status::searching;
};

}  // namespace distbelief
