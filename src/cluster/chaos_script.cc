#include "cluster/chaos_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/error.h"
#include "base/nearest_name.h"
#include "cluster/chaos_effects.h"
#include "cluster/chaos_random.h"
#include "cluster/chaos_words.h"

namespace distbelief {
namespace {

constexpr std::int64_t kMostWorkers = 1'000'000;
constexpr std::int64_t kMostSteps = 1'000'000'000'000'000;

bool is_space(char letter) { return std::isspace(static_cast<unsigned char>(letter)) != 0; }

/// The words of each event, events without words left out.
std::vector<std::pair<ChaosWords, std::string>> split(std::string_view text) {
  std::vector<std::pair<ChaosWords, std::string>> events;
  std::vector<ChaosWords::Word> words;
  std::string joined;
  for (std::size_t at = 0; at <= text.size(); ++at) {
    if (at == text.size() || text[at] == ';') {
      if (!words.empty()) {
        events.emplace_back(ChaosWords(std::exchange(words, {}), at + 1), std::exchange(joined, {}));
      }
    } else if (!is_space(text[at])) {
      std::size_t end = at;
      while (end < text.size() && text[end] != ';' && !is_space(text[end])) {
        ++end;
      }
      words.push_back({text.substr(at, end - at), at + 1});
      joined += (joined.empty() ? "" : " ") + std::string(words.back().text);
      at = end - 1;
    }
  }
  return events;
}

const ChaosEffect& read_effect(ChaosWords& words) {
  std::vector<std::string_view> names;
  for (const ChaosEffect& effect : chaos_effects()) {
    if (words.take_if(effect.name)) {
      return effect;
    }
    names.push_back(effect.name);
  }
  words.fail(listed(names), did_you_mean(words.peek().text, names));
}

/// "A-B" as two numbers.
std::pair<int, int> read_ends(ChaosWords& words) {
  const std::string expected = "two workers such as 0-2";
  const std::string_view text = words.peek().text;
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos) {
    words.fail(expected);
  }
  const std::size_t column = words.peek().column;
  const auto number = [&](std::string_view digits) {
    try {
      return static_cast<int>(ChaosWords({{digits, column}}, column).number(0, kMostWorkers, expected));
    } catch (const InputError&) {
      words.fail(expected);
    }
  };
  const std::pair<int, int> ends = {number(text.substr(0, dash)), number(text.substr(dash + 1))};
  if (ends.first == ends.second) {
    words.fail("two different workers");
  }
  static_cast<void>(words.take());
  return std::minmax(ends.first, ends.second);
}

/// "'worker N', 'server N' or 'coordinator'".
std::string subjects_of(const ChaosEffect& effect) {
  std::vector<std::string_view> subjects;
  for (const auto& [does, subject] :
       {std::pair(effect.for_workers, "'worker N'"), std::pair(effect.for_servers, "'server N'"),
        std::pair(effect.for_links, "'link A-B'"), std::pair(effect.for_coordinator, "'coordinator'"),
        std::pair(effect.for_disk, "'full'")}) {
    if (does) {
      subjects.emplace_back(subject);
    }
  }
  const std::string_view last = subjects.back();
  subjects.pop_back();
  return subjects.empty() ? std::string(last) : fmt::format("{} or {}", listed(subjects), last);
}

void read_subject(ChaosWords& words, ChaosEvent& event) {
  const ChaosEffect& effect = *event.effect;
  if (effect.for_workers && words.take_if("worker")) {
    event.subject_column = words.peek().column;
    event.subject.number = static_cast<int>(words.number(0, kMostWorkers, "a worker's number"));
    event.subject.first = event.subject.second = event.subject.number;
  } else if (effect.for_servers && words.take_if("server")) {
    event.subject_column = words.peek().column;
    event.subject.kind = ChaosSubject::Kind::server;
    event.subject.number = static_cast<int>(words.number(0, kMostWorkers, "a server's number, counted from 0"));
    event.subject.first = event.subject.second = -1;  // its rank: see placed()
  } else if (effect.for_coordinator && words.take_if("coordinator")) {
    event.subject.kind = ChaosSubject::Kind::coordinator;
  } else if (effect.for_disk && words.take_if("full")) {
    event.subject.kind = ChaosSubject::Kind::disk;
  } else if (effect.for_links && words.take_if("link")) {
    event.subject_column = words.peek().column;
    event.subject.kind = ChaosSubject::Kind::link;
    std::tie(event.subject.first, event.subject.second) = read_ends(words);
  } else {
    words.fail(subjects_of(effect));
  }
}

std::int64_t read_step(ChaosWords& words, std::int64_t least) {
  words.expect("step");
  return words.number(least, kMostSteps,
                      least == 1 ? "a step's number, counted from 1" : fmt::format("a step of {} or later", least));
}

/// "P%", if that comes next.
bool read_share(ChaosWords& words, ChaosEvent& event) {
  if (!words.peek().text.ends_with('%')) {
    return false;
  }
  event.share = words.percentage("a part of the run's samples, such as 40%");
  return true;
}

void read_when(ChaosWords& words, ChaosEvent& event) {
  const bool ranges = event.effect->when == ChaosEffect::When::during;
  if (words.take_if("at")) {
    if (ranges || !read_share(words, event)) {
      event.first_step = event.last_step = read_step(words, 1);
    }
  } else if (ranges && words.take_if("from")) {
    if (!read_share(words, event)) {
      event.first_step = read_step(words, 1);
      if (words.take_if("to")) {
        event.last_step = read_step(words, event.first_step);
      }
    }
  } else if (!words.done() || event.effect->when == ChaosEffect::When::at_step) {
    words.fail(ranges                                          ? "'at step N', 'from step N', 'from P%' or ';'"
               : event.effect->when == ChaosEffect::When::once ? "'at step N', 'at P%' or ';'"
                                                               : "'at step N' or 'at P%'");
  } else if (event.effect->when == ChaosEffect::When::once) {
    event.last_step = event.first_step;
  }
  if (!words.done()) {
    words.fail(ranges && !event.share && event.last_step > kMostSteps ? "'to step N' or ';'" : "';' or the end");
  }
}

}  // namespace

ChaosScript parse_chaos(std::string_view text) {
  ChaosScript script;
  if (random_chaos_seed(text)) {
    return script;
  }
  for (auto& [words, joined] : split(text)) {
    ChaosEvent event;
    event.effect = &read_effect(words);
    read_subject(words, event);
    event.effect->read(words, event);
    read_when(words, event);
    event.text = joined;
    script.events.push_back(std::move(event));
  }
  return script;
}

std::vector<ChaosScript::Rendezvous> ChaosScript::rendezvous() const {
  std::vector<Rendezvous> places;
  for (const ChaosEvent& event : events) {
    if (event.share && event.effect->when != ChaosEffect::When::during &&
        event.subject.kind == ChaosSubject::Kind::worker) {
      places.push_back({*event.share, event.subject.first});
    }
  }
  return places;
}

bool ChaosScript::touches_links() const {
  return std::ranges::any_of(events, [](const ChaosEvent& event) { return event.effect->for_links; });
}

ChaosScript ChaosScript::placed(int workers) const {
  ChaosScript script = *this;
  for (ChaosEvent& event : script.events) {
    if (event.subject.kind == ChaosSubject::Kind::server) {
      event.subject.first = event.subject.second = workers + event.subject.number;
    }
  }
  return script;
}

void ChaosScript::check_fit(const Cast& cast) const {
  const auto& [workers, servers, workers_are_threads, has_coordinator] = cast;
  for (const ChaosEvent& event : events) {
    if (event.subject.kind == ChaosSubject::Kind::server && event.subject.number >= servers) {
      throw InputError(fmt::format("--chaos: column {}: there is no server {}: {}", event.subject_column,
                                   event.subject.number,
                                   servers == 0   ? "the job has none"
                                   : servers == 1 ? "there is only 0"
                                                  : fmt::format("they are 0 to {}", servers - 1)));
    }
    if (event.subject.kind == ChaosSubject::Kind::coordinator && !workers_are_threads && !has_coordinator) {
      throw InputError(fmt::format("--chaos: '{}': a run of one process has no coordinator", event.text));
    }
    const int highest = std::max(event.subject.first, event.subject.second);
    const bool link = event.subject.kind == ChaosSubject::Kind::link;
    if (highest >= workers + (link ? servers : 0)) {
      throw InputError(fmt::format("--chaos: column {}: there is no worker {}: they are {}{}", event.subject_column,
                                   highest, workers == 1 ? "only 0" : fmt::format("0 to {}", workers - 1),
                                   link && servers > 0 ? ", and servers come after them" : ""));
    }
    if (event.effect->for_links && workers + servers == 1) {
      throw InputError(fmt::format("--chaos: '{}' is about links, and one worker has none", event.text));
    }
    if (workers_are_threads && event.effect->needs_process(event)) {
      throw InputError(
          fmt::format("--chaos: '{}' needs a worker that is a process: choose --transport socket or mpi", event.text));
    }
  }
}

}  // namespace distbelief
