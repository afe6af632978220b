#include "transport/mpi/mpi_world.h"

#ifdef DISTBELIEF_HAS_MPI

#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/process_identity.h"

namespace distbelief {
namespace {

constexpr unsigned long kTimerSlackNanoseconds = 1000;

/// An empty handler and not SIG_IGN, which programs that we start would inherit. Set after MPI_Init too, as MPICH
/// installs its own, after which it gives the job up.
void do_nothing_on_sigusr1() {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  action.sa_flags = SA_RESTART | SA_ONSTACK;  // see catch_stop_signals()
  ::sigaction(SIGUSR1, &action, nullptr);
}

std::string library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string whole(text, static_cast<std::size_t>(length));
#ifdef OPEN_MPI
  return whole.rfind("Open MPI v", 0) == 0 ? "Open MPI " + whole.substr(10, whole.find(',') - 10) : whole;
#else
  const auto digits = whole.find_first_of("0123456789");
  return digits == std::string::npos ? whole
                                     : "MPICH " + whole.substr(digits, whole.find_first_of(" \n\t", digits) - digits);
#endif
}

/// False when the deadline passed first; the request is then left to itself.
bool completes(MPI_Request& request, Clock::time_point deadline) {
  for (;;) {
    int flag = 0;
    if (MPI_Test(&request, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
      return false;
    }
    if (flag != 0) {
      return true;
    }
    if (Clock::now() >= deadline) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

}  // namespace

struct MpiWorld::State {
  int rank = 0;
  int size = 1;
  std::string library;
  std::vector<ProcessIdentity> processes;
  std::atomic<bool> unclean = false;
  bool finished = false;
};

std::string_view mpi_of_this_build() {
#ifdef OPEN_MPI
  return "Open MPI";
#else
  return "MPICH";
#endif
}

MpiWorld::MpiWorld(Clock::time_point deadline) : state_(std::make_unique<State>()) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  check(initialized == 0, "MPI is started once in a process's life");
  do_nothing_on_sigusr1();
  ::prctl(PR_SET_TIMERSLACK, kTimerSlackNanoseconds, 0, 0, 0);
  // Open MPI with more ranks than cores would give the core away in every MPI_Test that finds nothing. MpiFabric does
  // so itself, when it has waited for a while: a quarter to a half of an all-reduce. Who wants it otherwise has set it.
  ::setenv("OMPI_MCA_mpi_yield_when_idle", "0", 0);
  int provided = MPI_THREAD_SINGLE;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS) {
    throw Error("MPI could not be started");
  }
  do_nothing_on_sigusr1();
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &state_->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &state_->size);
  state_->library = library_version();
  if (provided < MPI_THREAD_SERIALIZED) {
    throw Error(state_->library + " offers no MPI_THREAD_SERIALIZED, which a process with several threads needs");
  }
  const ProcessIdentity self = identify_this_process();
  state_->processes.resize(static_cast<std::size_t>(state_->size));
  MPI_Request request = MPI_REQUEST_NULL;
  const int status = MPI_Iallgather(&self, sizeof self, MPI_BYTE, state_->processes.data(), sizeof self, MPI_BYTE,
                                    MPI_COMM_WORLD, &request);
  if (status != MPI_SUCCESS || !completes(request, deadline)) {
    // MPI may write into the table as long as the process lives, so it is given to it for good.
    [[maybe_unused]] const State* const left_to_mpi = state_.release();
    throw Error(fmt::format("not all {} MPI ranks came in time", left_to_mpi->size));
  }
}

MpiWorld::~MpiWorld() = default;
Rank MpiWorld::rank() const { return Rank{state_->rank}; }
int MpiWorld::size() const { return state_->size; }
const std::string& MpiWorld::library() const { return state_->library; }

bool MpiWorld::is_certainly_dead(Rank rank) const {
  check(rank.value >= 0 && rank.value < state_->size, "a rank of this job");
  return look_for(state_->processes[static_cast<std::size_t>(rank.value)]) == ProcessSight::gone;
}

void MpiWorld::leave_without_finalize() { state_->unclean = true; }

bool MpiWorld::finish(Clock::time_point deadline) {
  check(!state_->finished, "MPI is ended once");
  state_->finished = true;
  if (state_->unclean) {
    return false;
  }
  // MPI_Finalize knows no deadline. Who passes this barrier knows that all others are about to call it too.
  MPI_Request barrier = MPI_REQUEST_NULL;
  if (MPI_Ibarrier(MPI_COMM_WORLD, &barrier) != MPI_SUCCESS || !completes(barrier, deadline)) {
    return false;
  }
  return MPI_Finalize() == MPI_SUCCESS;
}

}  // namespace distbelief

#endif
