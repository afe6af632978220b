#include <gtest/gtest.h>

#include "base/error.h"
#include "transport/mpi/mpi_world.h"

namespace distbelief {
namespace {

TEST(MpiWorld, SaysThatThisBuildHasNoMpi) {
  if (!mpi_of_this_build().empty()) {
    EXPECT_TRUE(mpi_of_this_build() == "Open MPI" || mpi_of_this_build() == "MPICH");
    return;
  }
  try {
    const MpiWorld world(Clock::now());
    FAIL() << "it was made";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("without MPI"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace distbelief
