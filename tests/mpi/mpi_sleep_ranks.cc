// mpirun -n 2 mpi_sleep_ranks: waits for a message that never comes, until the launcher or a signal ends it, for 60 s
// at most. mpi_sleep_ranks --clean FOLDER: removes what killed jobs left and says what.
#include <cstring>

#include "rank_program.h"
#include "transport/mpi/mpi_leftovers.h"

int main(int argc, char** argv) {
  using namespace distbelief;
  if (argc == 3 && std::strcmp(argv[1], "--clean") == 0) {
    for (const auto& path : remove_mpi_leftovers(argv[2])) {
      say("removed " + path.native());
    }
    return 0;
  }
  MpiWorld world(far_away());
  MpiFabric fabric(world);
  introduce(world);
  Transfer never;
  fabric.receive(never, Rank{1 - world.rank().value}, {1, 1}, {});
  (void)fabric.wait(never, far_away());
  ::_exit(1);
}
