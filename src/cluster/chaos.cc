#include "cluster/chaos.h"

#include <fmt/format.h>

#include <fstream>

#include "base/error.h"

namespace distbelief {

Chaos::Chaos(ChaosScript script, Place place, ChaosTools& tools)
    : script_(std::move(script)), place_(std::move(place)), tools_(tools), running_(script_.events.size()) {
  std::ifstream in(place_.marks);
  for (std::string line; std::getline(in, line);) {
    marks_.insert(line);
  }
}

void Chaos::before_step(const Moment& moment) {
  const std::int64_t step = moment.step;
  for (std::size_t i = 0; i < running_.size(); ++i) {
    const ChaosEvent& event = script_.events[i];
    Running& running = running_[i];
    if (event.effect->when != ChaosEffect::When::during) {
      if (!concerns(event)) {
        continue;  // nothing to be done here, and so nothing to be written down
      }
      const bool due = event.share ? moment.share >= *event.share : step == event.first_step;
      if (due && !running.begun && !happened(event)) {
        mark(event);
        begin(event, running, moment);
      }
    } else if (!running.begun && event.first_step <= step && step <= event.last_step &&
               moment.share >= event.share.value_or(0)) {
      begin(event, running, moment);
    } else if (running.begun && step > event.last_step) {
      end(event, running, step);
    }
  }
}

bool Chaos::concerns(const ChaosEvent& event) const {
  return event.subject.kind == ChaosSubject::Kind::coordinator || event.subject.kind == ChaosSubject::Kind::disk ||
         event.subject.first == place_.self || event.subject.second == place_.self;
}

void Chaos::begin(const ChaosEvent& event, Running& running, const Moment& moment) {
  running.begun = true;
  const bool lasts = event.effect->when == ChaosEffect::When::during && event.first_step != event.last_step;
  say(event, fmt::format("{} step {}", lasts ? "from" : "at", moment.step) +
                 (event.share ? fmt::format(" ({:g}% of the run)", *event.share * 100) : ""));
  running.end = event.effect->begin(event, place_.self, tools_);
}

void Chaos::end(const ChaosEvent& event, Running& running, std::int64_t step) {
  running.begun = false;
  say(event, fmt::format("until step {}", step - 1));
  if (running.end) {
    std::exchange(running.end, {})();
  }
}

void Chaos::say(const ChaosEvent& event, const std::string& when) const {
  if (place_.note && event.subject.first == place_.self) {  // of a link the one end speaks for both, the first for all
    place_.note(fmt::format("chaos: {} {} {}", describe(event.subject), event.effect->deed(event), when));
  }
}

std::string Chaos::mark_of(const ChaosEvent& event) const {
  return fmt::format("worker {}: {}", place_.self, event.text);
}

bool Chaos::happened(const ChaosEvent& event) const { return place_.once_is_past || marks_.contains(mark_of(event)); }

void Chaos::mark(const ChaosEvent& event) {
  if (place_.marks.empty()) {
    return;
  }
  marks_.insert(mark_of(event));
  std::ofstream out(place_.marks, std::ios::app);  // a line is written in one piece: other workers write here too
  out << mark_of(event) + "\n" << std::flush;
  if (!out) {
    throw FileError(fmt::format("{}: cannot write down what --chaos does", place_.marks.string()));
  }
}

}  // namespace distbelief
