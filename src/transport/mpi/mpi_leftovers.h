#pragma once

#include <filesystem>
#include <vector>

namespace distbelief {

/// Removes what Open MPI's killed processes left behind, and returns it. MPICH leaves nothing.
///
/// - `temporary`/ompi.HOST.UID/pid.N: the session folder of an mpirun or orted with that pid. It stays behind when that
///   process is killed, and is removed when no process N lives.
/// - `shared_memory`/vader_segment.HOST.UID.JOB.RANK: 4 MB a rank, left when mpirun was killed too, which else removes
/// them.
///   Removed when its job belongs to such a folder, or when nothing has touched it for a minute.
///
/// Only what this user owns, on this host; never what a living process has mapped; nothing through symbolic links. When
/// a process of this user cannot be looked into, nothing is removed. Two containers that share both folders, host name
/// and user, but not their processes, would take each other's for dead: give them folders of their own.
///
/// `temporary` is where mpirun puts its sessions: $TMPDIR or /tmp. What cannot be removed is left in silence.
/// Thread-safe.
std::vector<std::filesystem::path> remove_mpi_leftovers(const std::filesystem::path& temporary = "/tmp",
                                                        const std::filesystem::path& shared_memory = "/dev/shm");

}  // namespace distbelief
