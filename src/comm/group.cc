#include "comm/group.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "comm/collective_table.h"

// Words: a *part* is what one member owns of the data at some moment; a *piece* is what one message carries. Messages
// are cut into pieces so that adding one overlaps with the next one's way. The algorithms:
// - ring (Patarasuk and Yuan 2009): parts travel round the ring, summed on the way, then once more to be copied. Each
//   member sends 2 (n-1)/n of the data, which is the least possible, in 2 (n-1) steps.
// - halving (Rabenseifner 2004): members exchange halves with partners at distance n/2, n/4, …, then gather the way
//   back: the same traffic in 2 log n steps, but to ever-changing partners.
// - doubling: partners at distance 1, 2, 4, … exchange all they have: log n steps, for what is short.
// Halving and doubling want a power of two; the members beyond it first give their data to a partner (fold).

namespace distbelief {
namespace {

constexpr std::size_t kPieceBytes = 256 * 1024;
constexpr std::size_t kWindow = 4;  // pieces that are on their way at a time

/// As many transfers as fit the window; whatever is still open when a step fails is cancelled.
class Window {
 public:
  explicit Window(Fabric& fabric) : fabric_(fabric) {}
  ~Window() {
    for (std::size_t piece = 0; piece < kWindow; ++piece) {
      if (open_[piece]) {
        fabric_.cancel(transfers_[piece]);
      }
    }
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  void send(std::size_t piece, Rank peer, Tag tag, std::span<const std::byte> data) {
    open_[piece % kWindow] = true;
    fabric_.send(transfers_[piece % kWindow], peer, tag, data);
  }
  void receive(std::size_t piece, Rank peer, Tag tag, std::span<std::byte> into) {
    open_[piece % kWindow] = true;
    fabric_.receive(transfers_[piece % kWindow], peer, tag, into);
  }
  Outcome wait(std::size_t piece, Clock::time_point deadline) {
    open_[piece % kWindow] = false;
    return fabric_.wait(transfers_[piece % kWindow], deadline);
  }

 private:
  Fabric& fabric_;
  std::array<Transfer, kWindow> transfers_;
  std::array<bool, kWindow> open_ = {};  // a transfer's own state belongs to the fabric while it is open
};

template <typename T>
void add_to(std::span<T> into, const T* from) {
  if constexpr (std::is_arithmetic_v<T>) {  // bytes are only ever copied
    T* __restrict out = into.data();
    const T* __restrict in = from;
    for (std::size_t i = 0; i < into.size(); ++i) {
      out[i] += in[i];
    }
  }
}

template <typename T>
std::size_t pieces_of(std::size_t elements) {
  constexpr std::size_t kElements = kPieceBytes / sizeof(T);
  return (elements + kElements - 1) / kElements;
}

template <typename Span>
Span piece_of(Span data, std::size_t piece) {
  constexpr std::size_t kElements = kPieceBytes / sizeof(typename Span::element_type);
  return data.subspan(piece * kElements, std::min(kElements, data.size() - piece * kElements));
}

int largest_power_of_two(int most) {
  int power = 1;
  while (power * 2 <= most) {
    power *= 2;
  }
  return power;
}

}  // namespace

class Group::Tags {
 public:
  /// For a collective of data with at most so many pieces a message. Uses up the group's numbers as it goes: all
  /// members make the same number of steps.
  Tags(std::uint32_t epoch, std::uint32_t& next, std::size_t pieces)
      : epoch_(epoch), next_(next), pieces_(static_cast<std::uint32_t>(std::max<std::size_t>(pieces, 1))) {}
  Tag piece(std::size_t piece) const { return {epoch_, next_ + static_cast<std::uint32_t>(piece)}; }
  void end_step() { next_ += pieces_; }

 private:
  const std::uint32_t epoch_;
  std::uint32_t& next_;
  const std::uint32_t pieces_;
};

Group::Group(Fabric& fabric, std::vector<Rank> members, std::uint32_t epoch)
    : fabric_(fabric), members_(std::move(members)), epoch_(epoch), incoming_(kWindow * kPieceBytes) {
  const auto self = std::ranges::find(members_, fabric.rank());
  check(self != members_.end(), "a process forms groups that it is a member of");
  position_ = static_cast<int>(self - members_.begin());
}

std::vector<Rank> all_ranks(const Fabric& fabric) {
  std::vector<Rank> ranks;
  for (int rank = 0; rank < fabric.size(); ++rank) {
    ranks.push_back(Rank{rank});
  }
  return ranks;
}

Group::Part Group::part(std::size_t count, int position, int size) {
  const auto at = [&](int p) { return count * static_cast<std::size_t>(p) / static_cast<std::size_t>(size); };
  return {at(position), at(position + 1) - at(position)};
}

template <typename T>
Outcome Group::run(const Step<T>& step, Tags& tags, Clock::time_point deadline) {
  const std::size_t out_pieces = step.to < 0 ? 0 : pieces_of<T>(step.out.size());
  const std::size_t in_pieces = step.from < 0 ? 0 : pieces_of<T>(step.in.size());
  const auto rank_of = [&](int position) { return members_[static_cast<std::size_t>(position)]; };
  T* const waiting = incoming_.as<T>().data();
  const auto landing = [&](std::size_t piece) {
    const std::span<T> place = piece_of(step.in, piece);
    return step.add ? std::span(waiting + piece % kWindow * (kPieceBytes / sizeof(T)), place.size()) : place;
  };
  Window sends(fabric_), receives(fabric_);
  const auto post = [&](std::size_t piece) {
    if (piece < in_pieces) {
      receives.receive(piece, rank_of(step.from), tags.piece(piece), std::as_writable_bytes(landing(piece)));
    }
    if (piece < out_pieces) {
      sends.send(piece, rank_of(step.to), tags.piece(piece), std::as_bytes(piece_of(step.out, piece)));
    }
  };
  const std::size_t pieces = std::max(out_pieces, in_pieces);
  for (std::size_t piece = 0; piece < std::min(pieces, kWindow); ++piece) {
    post(piece);
  }
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    if (piece < in_pieces) {
      if (Outcome outcome = receives.wait(piece, deadline); !outcome.ok()) {
        return outcome;
      }
      if (step.add) {
        add_to(piece_of(step.in, piece), landing(piece).data());
      }
    }
    if (piece < out_pieces) {
      if (Outcome outcome = sends.wait(piece, deadline); !outcome.ok()) {
        return outcome;
      }
    }
    post(piece + kWindow);
  }
  tags.end_step();
  return {};
}

template <typename T>
Outcome Group::ring(std::span<T> data, int first, bool add, Tags& tags, Clock::time_point deadline) {
  const int n = size();
  const auto part_at = [&](int place) {
    const Part where = part(data.size(), ((place % n) + n) % n, n);
    return data.subspan(where.begin, where.size);
  };
  for (int step = 0; step < n - 1; ++step) {
    Outcome outcome = run<T>({.to = (position_ + 1) % n,
                              .out = part_at(first - step),
                              .from = (position_ + n - 1) % n,
                              .in = part_at(first - step - 1),
                              .add = add},
                             tags, deadline);
    if (!outcome.ok()) {
      return outcome;
    }
  }
  return {};
}

template <typename T>
Outcome Group::ring_reduce_scatter(std::span<T> data, Tags& tags, Clock::time_point deadline) {
  return ring(data, position_ - 1, true, tags, deadline);
}

template <typename T>
Outcome Group::ring_all_gather(std::span<T> data, Tags& tags, Clock::time_point deadline) {
  return ring(data, position_, false, tags, deadline);
}

template <typename T>
Outcome Group::doubling(std::span<T> data, int number, int among, Tags& tags, Clock::time_point deadline) {
  // Both partners add the other's data to their own: a + b has the same bits as b + a.
  const int beyond = size() - among;
  const auto position_of = [&](int folded) { return folded < beyond ? 2 * folded : folded + beyond; };
  std::vector<T> before(data.size());
  for (int distance = 1; distance < among; distance *= 2) {
    if (number < 0) {
      tags.end_step();
      continue;
    }
    const int partner = position_of(number ^ distance);
    std::ranges::copy(data, before.begin());
    Outcome outcome = run<T>({.to = partner, .out = before, .from = partner, .in = data, .add = true}, tags, deadline);
    if (!outcome.ok()) {
      return outcome;
    }
  }
  return {};
}

template <typename T>
Outcome Group::halving(std::span<T> data, int number, int among, Tags& tags, Clock::time_point deadline) {
  const int beyond = size() - among;
  const auto position_of = [&](int folded) { return folded < beyond ? 2 * folded : folded + beyond; };
  // Members whose numbers agree above `distance` hold the same parts [first, first + 2 · distance) of `among`.
  const auto parts_at = [&](int first, int count) {
    const std::size_t begin = part(data.size(), first, among).begin;
    const Part last = part(data.size(), first + count - 1, among);
    return data.subspan(begin, last.begin + last.size - begin);
  };
  for (int distance = among / 2; distance > 0; distance /= 2) {
    if (number < 0) {
      tags.end_step();
      continue;
    }
    const int first = number / (2 * distance) * (2 * distance);
    const bool low = (number & distance) == 0;
    const int partner = position_of(number ^ distance);
    Outcome outcome = run<T>({.to = partner,
                              .out = parts_at(low ? first + distance : first, distance),
                              .from = partner,
                              .in = parts_at(low ? first : first + distance, distance),
                              .add = true},
                             tags, deadline);
    if (!outcome.ok()) {
      return outcome;
    }
  }
  for (int distance = 1; distance < among; distance *= 2) {
    if (number < 0) {
      tags.end_step();
      continue;
    }
    const int first = number / (2 * distance) * (2 * distance);
    const bool low = (number & distance) == 0;
    const int partner = position_of(number ^ distance);
    Outcome outcome = run<T>({.to = partner,
                              .out = parts_at(low ? first : first + distance, distance),
                              .from = partner,
                              .in = parts_at(low ? first + distance : first, distance)},
                             tags, deadline);
    if (!outcome.ok()) {
      return outcome;
    }
  }
  return {};
}

template <typename T>
Outcome Group::folded(std::span<T> data, bool halves, Tags& tags, Clock::time_point deadline) {
  // Of the first 2 · beyond members each odd one gives its data to the even one before it, waits, and gets the result.
  const int among = largest_power_of_two(size());
  const int beyond = size() - among;
  const bool in_pair = position_ < 2 * beyond;
  const bool gives = in_pair && position_ % 2 == 1;
  if (beyond > 0) {
    Step<T> fold;
    if (gives) {
      fold = {.to = position_ - 1, .out = data};
    } else if (in_pair) {
      fold = {.from = position_ + 1, .in = data, .add = true};
    }
    if (Outcome outcome = run(fold, tags, deadline); !outcome.ok()) {
      return outcome;
    }
  }
  const int number = gives ? -1 : in_pair ? position_ / 2 : position_ - beyond;
  if (Outcome outcome =
          halves ? halving(data, number, among, tags, deadline) : doubling(data, number, among, tags, deadline);
      !outcome.ok()) {
    return outcome;
  }
  if (beyond > 0) {
    Step<T> unfold;
    if (gives) {
      unfold = {.from = position_ - 1, .in = data};
    } else if (in_pair) {
      unfold = {.to = position_ + 1, .out = data};
    }
    return run(unfold, tags, deadline);
  }
  return {};
}

template <typename T>
Outcome Group::sum(std::span<T> data, Algorithm algorithm, Clock::time_point deadline) {
  if (size() == 1 || data.empty()) {
    return {};
  }
  Tags tags(epoch_, next_sequence_, pieces_of<T>(data.size()));
  if (algorithm != Algorithm::ring) {
    return folded(data, algorithm == Algorithm::halving, tags, deadline);
  }
  if (Outcome outcome = ring_reduce_scatter(data, tags, deadline); !outcome.ok()) {
    return outcome;
  }
  return ring_all_gather(data, tags, deadline);
}

Outcome Group::all_reduce(std::span<float> data, Algorithm algorithm, Clock::time_point deadline) {
  return sum(data, algorithm, deadline);
}

Outcome Group::all_reduce(std::span<float> data, Clock::time_point deadline) {
  return sum(data, all_reduce_algorithm(data.size_bytes(), size()), deadline);
}

Outcome Group::all_reduce(std::span<double> data, Clock::time_point deadline) {
  return sum(data, all_reduce_algorithm(data.size_bytes(), size()), deadline);
}

Outcome Group::reduce_scatter(std::span<float> data, Clock::time_point deadline) {
  Tags tags(epoch_, next_sequence_, pieces_of<float>(data.size()));
  return ring_reduce_scatter(data, tags, deadline);
}

Outcome Group::all_gather(std::span<float> data, Clock::time_point deadline) {
  Tags tags(epoch_, next_sequence_, pieces_of<float>(data.size()));
  return ring_all_gather(data, tags, deadline);
}

Outcome Group::all_gather(std::span<std::uint64_t> data, Clock::time_point deadline) {
  Tags tags(epoch_, next_sequence_, pieces_of<std::uint64_t>(data.size()));
  return ring_all_gather(data, tags, deadline);
}

Outcome Group::reduce(std::span<float> data, int root, Clock::time_point deadline) {
  // A binomial tree whose root is turned to position 0.
  const int n = size();
  const int place = (position_ - root + n) % n;
  Tags tags(epoch_, next_sequence_, pieces_of<float>(data.size()));
  for (int distance = 1; distance < n; distance *= 2) {
    Step<float> step;
    if (place % (2 * distance) == 0 && place + distance < n) {
      step = {.from = (position_ + distance) % n, .in = data, .add = true};
    } else if (place % (2 * distance) == distance) {
      step = {.to = (position_ + n - distance) % n, .out = data};
    }
    if (Outcome outcome = run(step, tags, deadline); !outcome.ok()) {
      return outcome;
    }
  }
  return {};
}

Outcome Group::broadcast(std::span<std::byte> data, int root, Clock::time_point deadline) {
  const int n = size();
  const int place = (position_ - root + n) % n;
  Tags tags(epoch_, next_sequence_, pieces_of<std::byte>(data.size()));
  for (int distance = largest_power_of_two(std::max(1, n - 1)); distance > 0; distance /= 2) {
    Step<std::byte> step;
    if (place % (2 * distance) == 0 && place + distance < n) {
      step = {.to = (position_ + distance) % n, .out = data};
    } else if (place % (2 * distance) == distance) {
      step = {.from = (position_ + n - distance) % n, .in = data};
    }
    if (Outcome outcome = run(step, tags, deadline); !outcome.ok()) {
      return outcome;
    }
  }
  return {};
}

Outcome Group::barrier(Clock::time_point deadline) {
  // Dissemination: after log n rounds everybody has heard, through others, of everybody.
  const int n = size();
  std::byte heard{}, say{};
  Tags tags(epoch_, next_sequence_, 1);
  for (int distance = 1; distance < n; distance *= 2) {
    Outcome outcome = run<std::byte>({.to = (position_ + distance) % n,
                                      .out = std::span(&say, 1),
                                      .from = (position_ + n - distance) % n,
                                      .in = std::span(&heard, 1)},
                                     tags, deadline);
    if (!outcome.ok()) {
      return outcome;
    }
  }
  return {};
}

}  // namespace distbelief
