#include "transport/mpi/mpi_launcher.h"

#include <charconv>

namespace distbelief {
namespace {

std::optional<std::int64_t> number(const EnvironmentLookup& environment, std::string_view name) {
  const auto text = environment(name);
  std::int64_t value = 0;
  if (!text || text->empty()) {
    return std::nullopt;
  }
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size()) {
    return std::nullopt;
  }
  return value;
}

/// Nothing unless both variables are there and are the numbers of a rank in a job.
std::optional<MpiLauncher> launched(MpiLauncher::Kind kind, const EnvironmentLookup& environment,
                                    std::string_view rank_name, std::string_view size_name) {
  const auto rank = number(environment, rank_name);
  const auto size = number(environment, size_name);
  if (!rank || !size || *rank < 0 || *rank >= *size || *size > (1 << 24)) {
    return std::nullopt;
  }
  return MpiLauncher{.kind = kind, .rank = static_cast<int>(*rank), .size = static_cast<int>(*size)};
}

bool is_set(const std::optional<std::string>& value) {
  return value && !value->empty() && *value != "0" && *value != "false" && *value != "no";
}

/// Slurm numbers the steps that are no srun (the batch script, an interactive shell) from here on.
constexpr std::int64_t kFirstReservedSlurmStep = 0xfffffff0;

}  // namespace

MpiLauncher detect_mpi_launcher(const EnvironmentLookup& environment) {
  using Kind = MpiLauncher::Kind;
  // Inside a Slurm allocation Slurm's variables are always there, so the others are asked first.
  if (auto found = launched(Kind::open_mpi, environment, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")) {
    found->several_hosts = number(environment, "OMPI_COMM_WORLD_LOCAL_SIZE").value_or(found->size) < found->size;
    // mpirun hands its option on to the ranks under the same name as the variable.
    found->survivors_live = is_set(environment("OMPI_MCA_orte_enable_recovery"));
    if (!found->survivors_live) {
      found->remedy = "mpirun --enable-recovery, or OMPI_MCA_orte_enable_recovery=1 in its environment";
    }
    return *found;
  }
  const bool hydra = environment("MPI_LOCALNRANKS").has_value();  // srun speaks PMI as well, but does not set this one
  const auto step = number(environment, "SLURM_STEP_ID");
  const bool in_slurm_step = step && *step >= 0 && *step < kFirstReservedSlurmStep;
  if (hydra || !in_slurm_step) {
    if (auto found = launched(Kind::mpich, environment, "PMI_RANK", "PMI_SIZE")) {
      found->several_hosts = number(environment, "MPI_LOCALNRANKS").value_or(found->size) < found->size;
      found->survivors_live = false;
      found->remedy = "mpiexec.hydra -disable-auto-cleanup; MPICH often ends the job all the same";
      return *found;
    }
  }
  if (in_slurm_step) {
    auto found = launched(Kind::slurm, environment, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS");
    if (!found) {
      found = launched(Kind::slurm, environment, "SLURM_PROCID", "SLURM_NTASKS");
    }
    if (found) {
      found->speaks_pmix = environment("PMIX_RANK").has_value();
      const auto nodes = number(environment, "SLURM_STEP_NUM_NODES");
      found->several_hosts = nodes.value_or(number(environment, "SLURM_NNODES").value_or(1)) > 1;
      if (found->speaks_pmix) {  // Slurm's part of PMIx ends the step when a rank dies, whatever the flags say
        found->survivors_live = false;
        found->remedy = "srun --kill-on-bad-exit=0 --no-kill with --transport socket --out DIR";
        return *found;
      }
      found->survivors_live =
          environment("SLURM_KILL_BAD_EXIT") == "0" && is_set(environment("SLURM_NO_KILL"));  // as options: not visible
      if (!found->survivors_live) {
        found->remedy = "srun --kill-on-bad-exit=0 --no-kill";
      }
      return *found;
    }
  }
  return {};
}

}  // namespace distbelief
