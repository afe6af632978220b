#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace distbelief {

struct ChaosEffect;

/// Whom something happens to.
struct ChaosSubject {
  enum class Kind : std::uint8_t { worker, server, link, coordinator, disk };
  Kind kind = Kind::worker;
  int first = 0;   ///< the worker's or server's rank, or that of one end of the link
  int second = 0;  ///< of a link: the other end; else the same
  int number = 0;  ///< of a worker or server among its like: what people call it
};

/// One thing that goes wrong on purpose: "slow worker 1 x5 from step 100". Which of the numbers mean something is the
/// effect's affair.
struct ChaosEvent {
  const ChaosEffect* effect = nullptr;  ///< of the table in chaos_effects.cc
  ChaosSubject subject = {};
  double factor = 1;
  double probability = 0;
  std::chrono::microseconds delay = {};
  std::chrono::microseconds most_delay = {};
  std::optional<std::chrono::milliseconds> duration = {};  ///< none: for good
  std::int64_t first_step = 1;                             ///< steps are counted from 1
  std::int64_t last_step = std::numeric_limits<std::int64_t>::max();
  std::optional<double> share = {};  ///< instead of steps: when so much of the run's samples is trained on
  std::string text = {};           ///< as it was written, with single spaces
  std::size_t subject_column = 1;  ///< where the subject's numbers stand, from 1
};

/// What --chaos says: a list of events. When each happens is a function of the step, so a run can be repeated.
struct ChaosScript {
  std::vector<ChaosEvent> events = {};

  /// A sample of the run, as a share of all of them, that this worker is to train on: something happens to it there.
  struct Rendezvous {
    double share = 0;
    int worker = 0;
  };
  /// In order of the script.
  std::vector<Rendezvous> rendezvous() const;

  /// Whether links must be able to fail.
  bool touches_links() const;
  /// The same with the ranks of servers, which come after those of the workers.
  ChaosScript placed(int workers) const;
  /// Who is there for things to happen to.
  struct Cast {
    int workers = 1;
    int servers = 0;
    bool workers_are_threads = false;
    bool has_coordinator = true;
  };
  /// Throws InputError when an event names a worker or server that is not there, or the end of a link that is neither a
  /// worker nor one of the servers, which are counted from there on; or when it can only happen to processes while
  /// workers are threads of one.
  void check_fit(const Cast& cast) const;
};

/// "EVENT; EVENT; ...", with EVENT = EFFECT SUBJECT ARGUMENTS [WHEN], SUBJECT = worker N | server N | link A-B |
/// coordinator, and WHEN = at step N | from step N [to step M] | at P% | from P%; or "disk full [for D] WHEN". Of
/// "random:SEED" no events: which they are depends on the job, see random_chaos(). Throws InputError of one line with
/// the column and the word that is wrong, and what was expected there.
ChaosScript parse_chaos(std::string_view text);

}  // namespace distbelief
