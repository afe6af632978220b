#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace distbelief {

/// The value of an environment variable, or nothing when it is not set. Only apps/ reads the environment.
using EnvironmentLookup = std::function<std::optional<std::string>(std::string_view name)>;

/// Who started this process as one of many, as its environment tells before MPI_Init.
struct MpiLauncher {
  enum class Kind : std::uint8_t { none, open_mpi, mpich, slurm };
  Kind kind = Kind::none;
  int rank = 0;
  int size = 1;
  bool speaks_pmix = false;    ///< the protocol by which Open MPI's ranks meet
  bool several_hosts = false;  ///< some of the processes are on other machines
  /// The launcher was told to let the others live when a process dies, as far as that can be seen from here.
  bool survivors_live = true;
  /// When they will not live, or nobody can tell (of srun): what to add to the command line so that they do. For
  /// people.
  std::string remedy = {};
};

/// Calls no MPI function. Thread-safe if `environment` is.
MpiLauncher detect_mpi_launcher(const EnvironmentLookup& environment);

}  // namespace distbelief
