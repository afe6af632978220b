// What a build without MPI says when it is asked for MPI.
#ifndef DISTBELIEF_HAS_MPI

#include "base/error.h"
#include "transport/mpi/mpi_fabric.h"
#include "transport/mpi/mpi_world.h"

namespace distbelief {

struct MpiWorld::State {
  std::string library;
};
class MpiFabric::Impl {};

namespace {

[[noreturn]] void say_so() {
  throw Error("this program was built without MPI; use sockets, or build it where libopenmpi-dev is installed");
}

}  // namespace

std::string_view mpi_of_this_build() { return ""; }

MpiWorld::MpiWorld(Clock::time_point) { say_so(); }
MpiWorld::~MpiWorld() = default;
Rank MpiWorld::rank() const { say_so(); }
int MpiWorld::size() const { say_so(); }
const std::string& MpiWorld::library() const { say_so(); }
bool MpiWorld::is_certainly_dead(Rank) const { say_so(); }
void MpiWorld::leave_without_finalize() {}
bool MpiWorld::finish(Clock::time_point) { say_so(); }

MpiFabric::MpiFabric(MpiWorld&) { say_so(); }
MpiFabric::~MpiFabric() = default;
Rank MpiFabric::rank() const { say_so(); }
int MpiFabric::size() const { say_so(); }
Outcome MpiFabric::wait(Transfer&, Clock::time_point) { say_so(); }
bool MpiFabric::progress(Transfer&) { say_so(); }
void MpiFabric::cancel(Transfer&) {}
void MpiFabric::lose(Rank, const std::string&) {}
void MpiFabric::end_epoch(std::uint32_t, const std::string&) {}
bool MpiFabric::memory_unsafe() { return false; }
void MpiFabric::post(Transfer&) { say_so(); }

}  // namespace distbelief

#endif
