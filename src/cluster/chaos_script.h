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
  enum class Kind : std::uint8_t { worker, link };
  Kind kind = Kind::worker;
  int first = 0;   ///< the worker, or one end of the link
  int second = 0;  ///< of a link: the other end; else the same
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
  /// Throws InputError when an event names a worker that is not among `workers`, or the end of a link that is neither
  /// that nor one of the servers, which are counted from there on; or when it can only happen to processes while
  /// workers are threads of one.
  void check_fit(int workers, int servers, bool workers_are_threads) const;
};

/// "EVENT; EVENT; ...", with EVENT = EFFECT SUBJECT ARGUMENTS [WHEN], SUBJECT = worker N | link A-B, and WHEN = at step
/// N | from step N [to step M] | at P% | from P%. Throws InputError of one line with the column and the word that is wrong, and what was
/// expected there.
ChaosScript parse_chaos(std::string_view text);

}  // namespace distbelief
