#include "cluster/chaos_effects.h"

#include <fmt/format.h>

#include <array>

namespace distbelief {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

std::string time_text(std::chrono::microseconds time) {
  return time < std::chrono::seconds(1) ? fmt::format("{:g} ms", static_cast<double>(time.count()) / 1e3)
                                        : fmt::format("{:g} s", static_cast<double>(time.count()) / 1e6);
}

std::string for_how_long(const ChaosEvent& event) {
  return event.duration ? " for " + time_text(*event.duration) : " for good";
}

bool is_worker(const ChaosEvent& event, int self) {
  return event.subject.kind == ChaosSubject::Kind::worker && event.subject.first == self;
}

/// A worker, or a server.
bool is_process(const ChaosEvent& event, int self) {
  return is_worker(event, self) || (event.subject.kind == ChaosSubject::Kind::server && event.subject.first == self);
}

/// The links of `self` that an event is about.
struct Concerned {
  bool any = false;
  std::optional<Rank> peer = {};  ///< none: all of them
};
Concerned links_of(const ChaosEvent& event, int self) {
  const int first = event.subject.first;
  const int second = event.subject.second;
  if (event.subject.kind == ChaosSubject::Kind::worker) {
    return first == self ? Concerned{true} : Concerned{true, Rank{first}};
  }
  if (self == first || self == second) {
    return {true, Rank{self == first ? second : first}};
  }
  return {};
}

void read_nothing(ChaosWords& /*words*/, ChaosEvent& /*event*/) {}

void read_duration(ChaosWords& words, ChaosEvent& event) {
  words.expect("for");
  event.duration = duration_cast<milliseconds>(words.duration());
}

void read_duration_if_any(ChaosWords& words, ChaosEvent& event) {
  if (words.peek().text == "for") {
    read_duration(words, event);
  }
}

bool never(const ChaosEvent& /*event*/) { return false; }
bool always(const ChaosEvent& /*event*/) { return true; }

Fault fault_of(Fault::Kind kind, const Concerned& links) {
  Fault fault;
  fault.kind = kind;
  fault.peer = links.peer;
  return fault;
}

// One row an effect: how it is written, and what happens.
constexpr ChaosEffect::When kDuring = ChaosEffect::When::during;
constexpr ChaosEffect::When kOnce = ChaosEffect::When::once;
constexpr ChaosEffect::When kAtStep = ChaosEffect::When::at_step;

const std::array kEffects = {
    ChaosEffect{.name = "slow",
                .arguments = "xF",
                .when = kDuring,
                .read = [](ChaosWords& words, ChaosEvent& event) { event.factor = words.factor(); },
                .needs_process = never,
                .deed = [](const ChaosEvent& event) { return fmt::format("slowed x{:g}", event.factor); },
                .begin = [](const ChaosEvent& event, int self, ChaosTools& tools) -> std::function<void()> {
                  if (!is_worker(event, self)) {
                    return {};
                  }
                  tools.set_slowness(event.factor);
                  return [&tools] { tools.set_slowness(1); };
                }},
    ChaosEffect{.name = "delay",
                .arguments = "by D [up to D]",
                .for_links = true,
                .when = kDuring,
                .read =
                    [](ChaosWords& words, ChaosEvent& event) {
                      words.expect("by");
                      event.delay = event.most_delay = words.duration();
                      if (words.take_if("up")) {
                        words.expect("to");
                        const auto before = words;
                        event.most_delay = words.duration();
                        if (event.most_delay < event.delay) {
                          before.fail(fmt::format("at least {}", time_text(event.delay)));
                        }
                      }
                    },
                .needs_process = never,
                .deed =
                    [](const ChaosEvent& event) {
                      return event.most_delay == event.delay
                                 ? fmt::format("delayed by {}", time_text(event.delay))
                                 : fmt::format("delayed by {} up to {}", time_text(event.delay),
                                               time_text(event.most_delay));
                    },
                .begin = [](const ChaosEvent& event, int self, ChaosTools& tools) -> std::function<void()> {
                  const Concerned links = links_of(event, self);
                  if (!links.any) {
                    return {};
                  }
                  Fault fault = fault_of(Fault::Kind::delay, links);
                  fault.delay = event.delay;
                  fault.jitter = event.most_delay - event.delay;
                  return tools.inject(fault);
                }},
    ChaosEffect{
        .name = "drop",
        .arguments = "P%",
        .for_links = true,
        .when = kDuring,
        .read = [](ChaosWords& words,
                   ChaosEvent& event) { event.probability = words.percentage("a part of all messages, such as 5%"); },
        .needs_process = never,
        .deed = [](const ChaosEvent& event) { return fmt::format("loses {:g} %", event.probability * 100); },
        .begin = [](const ChaosEvent& event, int self, ChaosTools& tools) -> std::function<void()> {
          const Concerned links = links_of(event, self);
          if (!links.any) {
            return {};
          }
          Fault fault = fault_of(Fault::Kind::drop, links);
          fault.probability = event.probability;
          return tools.inject(fault);
        }},
    ChaosEffect{
        .name = "cut",
        .arguments = "[for D]",
        .for_links = true,
        .when = kOnce,
        .read = read_duration_if_any,
        .needs_process = [](const ChaosEvent& event) { return event.subject.kind == ChaosSubject::Kind::worker; },
        .deed = [](const ChaosEvent& event) { return "cut" + for_how_long(event); },
        .begin = [](const ChaosEvent& event, int self, ChaosTools& tools) -> std::function<void()> {
          // Of a worker its own side is enough: it neither sends nor sees what comes.
          const bool worker = event.subject.kind == ChaosSubject::Kind::worker;
          const Concerned links = links_of(event, self);
          if (!links.any || (worker && !is_worker(event, self))) {
            return {};
          }
          const Clock::time_point until = event.duration ? Clock::now() + *event.duration : Clock::time_point::max();
          Fault fault = fault_of(Fault::Kind::cut, links);
          fault.until = until;
          (void)tools.inject(fault);
          if (worker) {
            tools.cut_control(until);
          }
          return {};
        }},
    ChaosEffect{.name = "kill",
                .arguments = "",
                .for_servers = true,
                .for_coordinator = true,
                .when = kAtStep,
                .read = read_nothing,
                .needs_process = always,
                .deed = [](const ChaosEvent& /*event*/) { return std::string("killed"); },
                .begin = [](const ChaosEvent& event, int self, ChaosTools& tools) -> std::function<void()> {
                  if (event.subject.kind == ChaosSubject::Kind::coordinator) {
                    tools.kill_coordinator(event);
                  } else if (is_process(event, self)) {
                    tools.kill();
                  }
                  return {};
                }},
    ChaosEffect{.name = "stop",
                .arguments = "for D",
                .for_servers = true,
                .when = kAtStep,
                .read = read_duration,
                .needs_process = always,
                .deed = [](const ChaosEvent& event) { return "stopped" + for_how_long(event); },
                .begin = [](const ChaosEvent& event, int self, ChaosTools& tools) -> std::function<void()> {
                  if (is_process(event, self)) {
                    tools.stop(*event.duration);
                  }
                  return {};
                }},
    ChaosEffect{.name = "disk",
                .arguments = "[for D]",
                .for_workers = false,
                .for_disk = true,
                .when = kAtStep,
                .read = read_duration_if_any,
                .needs_process = never,
                .deed = [](const ChaosEvent& event) { return "full" + for_how_long(event); },
                .begin = [](const ChaosEvent& event, int /*self*/, ChaosTools& tools) -> std::function<void()> {
                  tools.fill_disk(event.duration ? Clock::now() + *event.duration : Clock::time_point::max());
                  return {};
                }},
};

}  // namespace

std::span<const ChaosEffect> chaos_effects() { return kEffects; }

std::string describe(const ChaosSubject& subject) {
  switch (subject.kind) {
    case ChaosSubject::Kind::worker:
      return fmt::format("worker {}", subject.number);
    case ChaosSubject::Kind::server:
      return fmt::format("server {}", subject.number);
    case ChaosSubject::Kind::link:
      return fmt::format("link {}-{}", subject.first, subject.second);
    case ChaosSubject::Kind::coordinator:
      return "coordinator";
    case ChaosSubject::Kind::disk:
      break;
  }
  return "disk";
}

}  // namespace distbelief
