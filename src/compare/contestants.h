#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"

namespace distbelief {

/// One of the runs that are compared.
struct Contestant {
  std::string label;   ///< as it was asked for: "downpour:n-push=8"
  std::string folder;  ///< its name inside the comparison's folder: "downpour-n-push-8"
  RunConfig config;
};

/// The runs that a list such as "local,downpour,downpour:n-push=8" asks for: algorithms, each with options of its own
/// on top of `common`. What `common` says and is only for other algorithms (--n for softsync) is left out; one process
/// gets as many threads as the workers of the others together. Throws InputError for names and combinations that there
/// are not, saying what is possible. `common.workers` 0: nobody has said, so 2.
std::vector<Contestant> contestants_of(const std::string& list, const RunConfig& common);

/// All algorithms, as such a list.
std::string all_algorithms();

}  // namespace distbelief
