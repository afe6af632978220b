// mpirun -n 2 --mca btl_vader_single_copy_mechanism none mpi_stop_ranks: rank 1 begins to send 20 MB, which the
// receiver cannot fetch by itself, and stops. Rank 0 loses it, must call its memory unsafe as long as rank 1 may wake
// up, and safe when it is dead.
#include <csignal>
#include <thread>
#include <vector>

#include "rank_program.h"

int main() {
  using namespace distbelief;
  MpiWorld world(far_away());
  introduce(world);
  MpiFabric fabric(world);
  std::vector<std::byte> memory(20'000'000);
  std::int64_t pid = ::getpid();
  const auto pid_bytes = std::as_writable_bytes(std::span(&pid, 1));
  Transfer first;
  Transfer second;
  if (fabric.rank().value == 1) {
    fabric.send(first, Rank{0}, {1, 0}, pid_bytes);
    const bool sent = fabric.wait(first, far_away()).ok();
    fabric.send(second, Rank{0}, {1, 1}, memory);
    say(sent ? "rank 1 stops" : "FAILED: the pid was not sent");
    ::raise(SIGSTOP);
    ::_exit(1);
  }
  fabric.receive(first, Rank{1}, {1, 0}, pid_bytes);
  if (!fabric.wait(first, far_away()).ok()) {
    say("FAILED: no pid came");
    ::_exit(1);
  }
  fabric.receive(second, Rank{1}, {1, 1}, memory);
  const auto soon = Clock::now() + std::chrono::milliseconds(300);
  while (!fabric.progress(second) && Clock::now() < soon) {
    std::this_thread::yield();
  }
  fabric.lose(Rank{1}, "does not answer");
  const Outcome outcome = fabric.wait(second, far_away());
  const bool unsafe = fabric.memory_unsafe();
  ::kill(static_cast<pid_t>(pid), SIGKILL);
  const auto deadline = far_away();
  while (fabric.memory_unsafe() && Clock::now() < deadline) {
    std::this_thread::yield();
  }
  if (outcome.reason == "does not answer" && unsafe && Clock::now() < deadline) {
    say("rank 0 survived");
  } else {
    say(fmt::format("FAILED: outcome '{}', unsafe {}", outcome.reason, unsafe));
  }
  ::_exit(0);
}
