#pragma once

namespace distbelief {

/// Where Open MPI's helper started this process: has it notice within some seconds that its host is cut off from that
/// of mpirun. The probes that mpi_host_options() asks for are not sent while something that it said is on its way, such
/// as a line that a worker wrote; it would then wait for a quarter of an hour. What a system forbids is left as it is.
void bound_patience_of_mpi_helper();

}  // namespace distbelief
