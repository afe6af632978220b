#pragma once

#include <memory>
#include <string_view>

#include "data/dataset.h"

namespace distbelief {

/// Generated samples for tests and benchmarks: nothing is stored, each is a function of (seed, number).
struct SyntheticOptions {
  enum class Kind {
    classes,     ///< a coarse pattern for each class, plus noise: any model learns it
    random,      ///< noise alone with random classes: nothing to learn, for timing
    regression,  ///< noise in, a linear function of it out, plus noise
    sparse,      ///< rows with a few nonzero columns, half of them typical of the class
    indices,     ///< rows of integers in [0, vocabulary), half of them typical of the class
  };
  Kind kind = Kind::classes;
  Shape shape{1, 28, 28};  ///< sparse: the number of columns; indices: how many in a row
  std::int64_t classes = 10;
  std::int64_t targets = 1;  ///< regression
  std::uint64_t samples = 1000;
  std::uint64_t test = 200;  ///< samples of the test part
  std::uint64_t seed = 1;
  float noise = 0.5F;
  std::int64_t nonzeros = 20;      ///< sparse: a row's
  std::int64_t vocabulary = 1000;  ///< indices
};

/// Reads "classes=10,shape=3x32x32,samples=1000,seed=1" (what follows "synthetic:"; may be empty). Keys are those of
/// SyntheticOptions; test is a fifth of samples unless given; kind=random has shape 3x224x224 and 1000 classes unless
/// given. Throws InputError that names the key, the value and what was expected.
SyntheticOptions parse_synthetic(std::string_view text);

struct SyntheticSplits {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> test;  ///< null when test=0
};
SyntheticSplits make_synthetic(const SyntheticOptions& options);

}  // namespace distbelief
