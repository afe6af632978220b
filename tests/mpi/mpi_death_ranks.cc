// mpirun -n 2..4 mpi_death_ranks MICROSECONDS: the last rank is killed so long after it began to exchange 100 MB with
// all others in both directions. A thread of each survivor sees the death and tells its fabric. A survivor says "rank N
// survived" when all waits ended with that reason, and what survivors then exchange arrives.
#include <poll.h>
#include <sys/syscall.h>

#include <csignal>
#include <numeric>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

#include "rank_program.h"

namespace distbelief {
namespace {

constexpr std::size_t kBig = 100'000'000;
constexpr std::size_t kMiddle = 5'000'000;
constexpr char kReason[] = "was killed by signal 9";

void need(bool condition, const std::string& claim) {
  if (!condition) {
    throw std::runtime_error(claim);
  }
}

using Bytes = std::vector<std::byte>;

Bytes filled(std::size_t bytes, int rank, std::uint32_t round) {
  return Bytes(bytes, static_cast<std::byte>(16 * rank + static_cast<int>(round % 16)));
}

/// Messages to and from all of `peers`.
struct Exchange {
  Exchange(Fabric& over, const std::vector<Rank>& peers, Tag tag, std::size_t bytes)
      : fabric(over),
        out(filled(bytes, over.rank().value, tag.sequence)),
        in(peers.size(), Bytes(bytes)),
        sends(peers.size()),
        receives(peers.size()) {
    for (std::size_t i = 0; i < peers.size(); ++i) {
      fabric.receive(receives[i], peers[i], tag, in[i]);
      fabric.send(sends[i], peers[i], tag, out);
    }
  }
  Fabric& fabric;
  Bytes out;
  std::vector<Bytes> in;
  std::vector<Transfer> sends;
  std::vector<Transfer> receives;
};

/// Waits for the process to end, which needs no polling and no parenthood.
void await_death(pid_t pid) {
  const int descriptor = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (descriptor >= 0) {
    pollfd ended{descriptor, POLLIN, 0};
    ::poll(&ended, 1, 60'000);
    ::close(descriptor);
  }
}

std::vector<std::int64_t> exchange_pids(Fabric& fabric) {
  std::vector<std::int64_t> pids(static_cast<std::size_t>(fabric.size()));
  pids[static_cast<std::size_t>(fabric.rank().value)] = ::getpid();
  std::vector<Transfer> transfers(2 * pids.size());
  for (std::size_t i = 0; i < pids.size(); ++i) {
    const Rank peer{static_cast<int>(i)};
    if (peer != fabric.rank()) {
      const auto own = std::as_bytes(std::span(&pids[static_cast<std::size_t>(fabric.rank().value)], 1));
      fabric.receive(transfers[2 * i], peer, {1, 0}, std::as_writable_bytes(std::span(&pids[i], 1)));
      fabric.send(transfers[2 * i + 1], peer, {1, 0}, own);
    }
  }
  for (Transfer& transfer : transfers) {
    if (transfer.state != Transfer::State::idle) {
      need(fabric.wait(transfer, far_away()).ok(), "pids are exchanged");
    }
  }
  return pids;
}

[[noreturn]] void be_the_victim(Fabric& fabric, const std::vector<Rank>& others) {
  for (std::uint32_t round = 0;; ++round) {
    Exchange exchange(fabric, others, {2, round}, kBig);
    for (std::size_t i = 0; i < others.size(); ++i) {
      need(fabric.wait(exchange.receives[i], far_away()).ok(), "the victim's receive ends well as long as it lives");
      need(fabric.wait(exchange.sends[i], far_away()).ok(), "the victim's send ends well as long as it lives");
    }
  }
}

void survive(MpiFabric& fabric, Rank victim, pid_t victim_pid, std::chrono::microseconds kill_after) {
  std::vector<Rank> friends;
  for (int rank = 0; rank < victim.value; ++rank) {
    if (rank != fabric.rank().value) {
      friends.push_back(Rank{rank});
    }
  }
  std::jthread watcher([&] {
    await_death(victim_pid);
    fabric.lose(victim, kReason);
  });
  std::jthread killer;
  Clock::time_point learned;
  std::uint32_t round = 0;
  std::size_t unfinished = 0;
  for (bool alive = true; alive; ++round) {
    Exchange with_victim(fabric, {victim}, {2, round}, kBig);
    Exchange with_friends(fabric, friends, {3, round}, kMiddle);
    if (round == 1 && fabric.rank().value == 0) {
      killer = std::jthread([&] {
        std::this_thread::sleep_for(kill_after);
        ::kill(victim_pid, SIGKILL);
      });
    }
    for (Transfer* transfer : {&with_victim.receives[0], &with_victim.sends[0]}) {
      const Outcome outcome = fabric.wait(*transfer, far_away());
      if (!outcome.ok()) {
        need(outcome.kind == Outcome::Kind::peer_lost && outcome.peer == victim && outcome.reason == kReason,
             fmt::format("a wait for the victim ends with its death, and not with: {}", outcome.reason));
        alive = false;
      } else if (transfer == &with_victim.receives[0]) {
        need(with_victim.in[0] == filled(kBig, victim.value, round), "what the victim sent is whole");
      }
    }
    learned = Clock::now();
    // The group has lost a member: what is open with the others is given up, wherever it stands, and the memory used.
    for (std::size_t i = 0; i < friends.size(); ++i) {
      for (Transfer* transfer : {&with_friends.receives[i], &with_friends.sends[i]}) {
        if (alive) {
          const Outcome outcome = fabric.wait(*transfer, far_away());
          if (!outcome.ok()) {  // the friend learned of the death in an earlier round than we
            need(outcome.reason == "gave the exchange up", outcome.reason);
            ++unfinished;
          } else if (transfer == &with_friends.receives[i]) {
            need(with_friends.in[i] == filled(kMiddle, friends[i].value, round), "what a friend sent is whole");
          }
        } else if (fabric.progress(*transfer)) {
          (void)fabric.wait(*transfer, far_away());
        } else {
          ++unfinished;
          fabric.cancel(*transfer);
        }
      }
    }
    const auto deadline = far_away();
    while (fabric.memory_unsafe()) {  // a friend was too slow to end what it had begun
      need(Clock::now() < deadline, "memory is safe again when its senders go on or are dead");
    }
    std::ranges::fill(with_friends.out, std::byte{0xEE});
    for (Bytes& in : with_friends.in) {
      std::ranges::fill(in, std::byte{0x77});
    }
  }
  Transfer late;
  fabric.receive(late, victim, {2, round + 1}, {});
  need(fabric.progress(late) && fabric.wait(late, far_away()).reason == kReason, "what is posted later ends at once");

  for (std::uint32_t after = 0; after < 20; ++after) {
    Exchange exchange(fabric, friends, {4, after}, after % 2 == 0 ? kMiddle : 64);
    for (std::size_t i = 0; i < friends.size(); ++i) {
      need(fabric.wait(exchange.receives[i], far_away()).ok(), "survivors receive from each other");
      need(fabric.wait(exchange.sends[i], far_away()).ok(), "survivors send to each other");
      need(exchange.in[i] == filled(exchange.out.size(), friends[i].value, after), "what a survivor sent is whole");
    }
  }
  say(fmt::format("rank {} survived; round {}, {} transfers with the living given up", fabric.rank().value, round - 1,
                  unfinished));
}

void run(std::chrono::microseconds kill_after) {
  MpiWorld world(far_away());
  introduce(world);
  const Rank victim{world.size() - 1};
  {
    MpiFabric fabric(world);
    const std::vector<std::int64_t> pids = exchange_pids(fabric);
    if (fabric.rank() == victim) {
      std::vector<Rank> others(static_cast<std::size_t>(victim.value));
      for (int rank = 0; rank < victim.value; ++rank) {
        others[static_cast<std::size_t>(rank)] = Rank{rank};
      }
      be_the_victim(fabric, others);
    }
    survive(fabric, victim, static_cast<pid_t>(pids.back()), kill_after);
  }
  need(!world.finish(far_away()), "after a death MPI is left without MPI_Finalize");
}

}  // namespace
}  // namespace distbelief

int main(int argc, char** argv) {
  try {
    distbelief::run(std::chrono::microseconds(argc > 1 ? std::atoi(argv[1]) : 0));
  } catch (const std::exception& error) {
    distbelief::say(fmt::format("FAILED {}: {}", ::getpid(), error.what()));
    ::_exit(1);
  }
  ::_exit(0);
}
