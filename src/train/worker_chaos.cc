#include "train/worker_chaos.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "base/check.h"
#include "base/full_disk.h"
#include "transport/locked/locked_fabric.h"

namespace distbelief {
namespace {

constexpr std::chrono::seconds kLastWords{2};
constexpr std::chrono::milliseconds kNap{20};

}  // namespace

WorkerChaos::WorkerChaos(const RunConfig& config, Place place)
    : place_(std::move(place)),
      chaos_(
          parse_chaos(config.chaos).placed(static_cast<int>(config.workers)),
          {.self = place_.self,
           .marks = std::filesystem::exists(place_.folder) ? place_.folder / kChaosMarksFile : std::filesystem::path(),
           .once_is_past = place_.restarts > 0 && !std::filesystem::exists(place_.folder),
           .note = place_.note},
          *this) {
  for (const ChaosEvent& event : parse_chaos(config.chaos).placed(static_cast<int>(config.workers)).events) {
    const bool of_this_worker = event.subject.kind == ChaosSubject::Kind::worker && event.subject.first == place_.self;
    if (event.effect->name == "slow" && of_this_worker && !event.share && event.first_step <= 1) {
      first_slowness_ = event.factor;
    }
  }
}

void WorkerChaos::before_step(const Chaos::Moment& moment, ComputeWatch& watch, const std::function<bool()>& stop) {
  const double took = watch.seconds() - computed_;
  {
    const ComputeWatch::Span computes(&watch);  // to others it looks like that, whatever happens here
    chaos_.before_step(moment);
    const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                          std::chrono::duration<double>(took * (slowness_ - 1)));
    while (Clock::now() < until && !stop()) {
      std::this_thread::sleep_until(std::min(until, Clock::now() + kNap));
    }
  }
  computed_ = watch.seconds();
}

std::function<void()> WorkerChaos::inject(const Fault& fault) {
  check(place_.fabric != nullptr, "links that cannot fail");
  FaultyFabric& fabric = *place_.fabric;
  return [&fabric, id = fabric.inject(fault)] { fabric.lift(id); };
}

void WorkerChaos::cut_control(Clock::time_point until) {
  check(place_.member != nullptr, "a worker without a control plane");
  place_.member->cut_off(until);
}

void WorkerChaos::kill() {
  if (place_.member != nullptr) {
    static_cast<void>(place_.member->flush(Clock::now() + kLastWords));  // people should read what was done
  }
  std::fflush(nullptr);
  ::kill(::getpid(), SIGKILL);
}

void WorkerChaos::stop(std::chrono::milliseconds duration) {
  if (place_.member != nullptr) {
    static_cast<void>(place_.member->flush(Clock::now() + kLastWords));
  }
  // Who is stopped cannot wake itself.
  waker_ = std::make_unique<ChildProcess>(ProcessSpec{
      .name = "waker",
      .argv = {"/bin/sh", "-c",
               fmt::format("sleep {:.3f}; kill -CONT {}", std::chrono::duration<double>(duration).count(), ::getpid())},
      .environment = {"PATH=/usr/bin:/bin"}});
  ::kill(::getpid(), SIGSTOP);
}

void WorkerChaos::kill_coordinator(const ChaosEvent& event) {
  check(place_.member != nullptr, "a worker without a control plane");
  place_.member->chaos_due(event.text);
}

void WorkerChaos::fill_disk(Clock::time_point until) { set_disk_full(place_.folder / "checkpoints", until); }

std::unique_ptr<Fabric> with_faults(std::unique_ptr<Fabric> fabric, const RunConfig& config, FaultyFabric*& faulty) {
  faulty = nullptr;
  if (!parse_chaos(config.chaos).touches_links()) {
    return fabric;
  }
  const auto rank = static_cast<std::uint64_t>(fabric->rank().value);
  auto made = std::make_unique<FaultyFabric>(std::move(fabric), config.seed + (rank << 32));
  faulty = made.get();
  return made;
}

std::unique_ptr<Fabric> with_lock(std::unique_ptr<Fabric> fabric, const RunConfig& config, LockedFabric*& locked) {
  locked = nullptr;
  const bool sums_beside_parts = config.algorithm == "allreduce";  // of one copy there are none, but others may come
  if (parts_of(config) == 1 || !(is_served(config) || sums_beside_parts)) {
    return fabric;
  }
  auto made = std::make_unique<LockedFabric>(std::move(fabric), is_served(config) || replicas_of(config) > 1);
  locked = made.get();
  return made;
}

}  // namespace distbelief
