#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "params/lbfgs/vector_space.h"
#include "params/lbfgs/wolfe_search.h"
#include "params/state_visitor.h"

namespace distbelief {

/// L-BFGS (Nocedal 1980) as Sandblaster's coordinator runs it (Dean et al. 2012): it orders operations on vectors that
/// it never sees, and knows only their dot products.
///
/// The objective is the mean loss of the samples of an evaluation plus weight_decay / 2 times the squares of what
/// decays. It is evaluated by others, at kValues; kGradient then holds the mean gradient of the loss, and evaluated()
/// is told the loss; go_on() then makes kValues the next place to evaluate at. An iteration is a line search along a
/// direction made of the last `history` steps and changes of the gradient; mostly one evaluation.
///
/// A direction that does not go downwards, or along which nothing is found, is given up: history is forgotten and
/// the search begins again along the gradient. If that finds nothing either, or if many iterations in a row have found no
/// lower objective than was known, there is nothing more to gain. A pair
/// whose curvature is not positive is damped: its change of gradient is moved towards what the history's scale
/// expects, until it is (Powell 1978). One thread.
class Lbfgs {
 public:
  struct Options {
    int history = 10;
    double weight_decay = 0;
    double tolerance = 0;  ///< ends when the gradient is no longer than this
    WolfeSearch::Options search = {};
  };
  enum class Status {
    going_on,  ///< go_on(), and evaluate the objective there
    minimum,   ///< the gradient is as short as was asked for
    stuck,     ///< the objective does not become less any more
    lost,      ///< of the vectors, some are lost
  };
  struct Report {
    Status status = Status::going_on;
    bool iterated = false;     ///< what was evaluated, and is kValues still, ends an iteration, or is where all begins
    double objective = 0;      ///< there; with decay
    double gradient_norm = 0;  ///< there, of the objective
    double step = 0;           ///< of the line search that ended; 0 at the beginning
  };

  /// `space` is borrowed.
  Lbfgs(VectorSpace& space, const Options& options);

  /// Of the evaluation at kValues.
  [[nodiscard]] Report evaluated(double loss);
  /// Makes kValues the next place to evaluate at, also when it is that already. False: vectors are lost.
  [[nodiscard]] bool go_on();
  /// Instead of that, after an iteration: the objective becomes another one, of more samples, and is evaluated once
  /// more where the iteration ended.
  void change_objective();
  /// Forgets the history, of which some vectors may be of another moment than others, and begins anew at kValues.
  void begin_again();

  std::int64_t iterations() const { return static_cast<std::int64_t>(iterations_); }
  /// Directions that were given up for the gradient's.
  std::int64_t restarts() const { return static_cast<std::int64_t>(restarts_); }
  /// Pairs whose curvature was not positive.
  std::int64_t damped() const { return static_cast<std::int64_t>(damped_); }

  /// All but the vectors, between two evaluations.
  void visit_state(StateVisitor& visitor);

 private:
  /// Where the line search began, the gradient there, and the direction.
  static constexpr VectorName kOrigin = kFirstFree;
  static constexpr VectorName kOriginGradient = kFirstFree + 1;
  static constexpr VectorName kDirection = kFirstFree + 2;
  static constexpr VectorName kScratch = kFirstFree + 3;
  static constexpr VectorName kFirstPair = kFirstFree + 4;
  /// A pair of the history: a step and how it changed the gradient. 0 is the oldest.
  VectorName step_vector(std::uint64_t age) const { return kFirstPair + 2 * slot(age); }
  VectorName change_vector(std::uint64_t age) const { return step_vector(age) + 1; }
  VectorName slot(std::uint64_t age) const {
    return static_cast<VectorName>((oldest_ + age) % static_cast<std::uint64_t>(options_.history));
  }

  bool run(std::initializer_list<VectorOrder> orders) { return space_.run({orders.begin(), orders.size()}, dots_); }
  bool add_decay(double& objective);
  /// From kOrigin to kValues, as the newest pair.
  bool remember_pair();
  /// From the gradient at kValues and the history.
  bool find_direction();
  /// Along kDirection from kValues; a direction that does not go downwards is first given up.
  bool begin_search(double objective);
  Report lost() const { return {.status = Status::lost}; }

  enum class Awaited : std::uint64_t {
    beginning,  ///< an evaluation where all begins
    trial,      ///< of the line search
    again,      ///< where the last iteration ended, of another objective, or of a run that goes on after its end
  };

  VectorSpace& space_;
  const Options options_;
  Awaited awaited_ = Awaited::beginning;
  WolfeSearch search_;
  double objective_ = 0;  ///< at kOrigin
  double least_ = 0;      ///< that an iteration has ended with, of this objective
  std::uint64_t since_least_ = 0;  ///< iterations
  double scale_ = 1;      ///< of the inverse Hessian, by the newest pair
  std::uint64_t oldest_ = 0;
  std::uint64_t pairs_ = 0;
  std::vector<double> curvatures_;  ///< by slot: step times change
  std::uint64_t iterations_ = 0;
  std::uint64_t restarts_ = 0;
  std::uint64_t damped_ = 0;
  std::vector<double> dots_;
};

}  // namespace distbelief
