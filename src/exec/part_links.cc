#include "exec/part_links.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <thread>

#include "base/check.h"

namespace distbelief {
namespace {

using std::chrono::microseconds;

constexpr std::uint32_t kOpenOfAValue = 256;  ///< messages of one value that may be on their way at the same time
constexpr microseconds kYieldFor{50};
constexpr microseconds kNap{50};

std::vector<Rank> members_of_stage(const std::vector<Rank>& all, Rank self, int tensor) {
  const auto at = std::ranges::find(all, self) - all.begin();
  const auto first = all.begin() + at / tensor * tensor;
  return {first, first + tensor};
}

void expect(const Outcome& outcome) {
  if (!outcome.ok()) {
    throw ExchangeLost(outcome);
  }
}

/// Calls use(piece) for each piece of the data, in order; none when there is no data.
template <typename T, typename Use>
void for_each_piece(std::span<T> data, std::size_t most, const Use& use) {
  for (std::size_t begin = 0; begin < data.size(); begin += most) {
    use(data.subspan(begin, std::min(most, data.size() - begin)));
  }
}

}  // namespace

/// A value on its way to another stage, in memory of its own.
class PartLinks::Outgoing {
 public:
  explicit Outgoing(Fabric& fabric) : fabric_(fabric) {}
  ~Outgoing() {
    if (open_) {
      fabric_.cancel(transfer_);
    }
  }
  Outgoing(const Outgoing&) = delete;
  Outgoing& operator=(const Outgoing&) = delete;

  bool is_open() const { return open_; }
  std::size_t room() const { return data_.bytes(); }
  void send(Rank peer, Tag tag, std::span<const float> data) {
    if (data_.bytes() < data.size_bytes()) {
      data_ = Buffer(data.size_bytes());
    }
    std::memcpy(data_.data(), data.data(), data.size_bytes());
    fabric_.send(transfer_, peer, tag, {data_.data(), data.size_bytes()});
    open_ = true;
  }
  /// True when it has arrived or is lost.
  bool end_if_sent() {
    if (!fabric_.progress(transfer_)) {
      return false;
    }
    open_ = false;
    expect(fabric_.wait(transfer_, Clock::now()));
    return true;
  }

 private:
  Fabric& fabric_;
  Transfer transfer_;
  Buffer data_;
  bool open_ = false;
};

/// Counts the time that it lives.
class PartLinks::Waiting {
 public:
  explicit Waiting(PartLinks& links) : links_(links), pause_(links.watch_) {}
  ~Waiting() { links_.waiting_seconds_ += seconds_since(began_); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  PartLinks& links_;
  const ComputeWatch::Pause pause_;
  const Clock::time_point began_ = Clock::now();
};

PartLinks::PartLinks(Fabric& fabric, const Options& options)
    : fabric_(fabric),
      tensor_(options.tensor),
      patience_(options.patience),
      watch_(options.watch),
      value_epoch_(options.epoch + 2),
      most_floats_of_a_piece_(options.most_bytes_of_a_piece / sizeof(float)),
      all_(fabric, options.members, options.epoch),
      stage_(fabric, members_of_stage(options.members, fabric.rank(), options.tensor), options.epoch + 1),
      swapped_out_(static_cast<std::size_t>(options.tensor)),
      swapped_in_(static_cast<std::size_t>(options.tensor)) {}

PartLinks::~PartLinks() = default;

Rank PartLinks::rank_at(int stage) const {
  return all_.members().at(static_cast<std::size_t>(stage * tensor_ + stage_.position()));
}

Tag PartLinks::next_tag(int value, bool gradient, bool sends) {
  std::uint32_t& count = (sends ? sent_ : received_)[{value, gradient}];
  const auto key = static_cast<std::uint32_t>(2 * value + (gradient ? 1 : 0));
  return {value_epoch_, key * kOpenOfAValue + count++ % kOpenOfAValue};
}

void PartLinks::sum(std::span<float> data) {
  const Waiting waiting(*this);
  expect(stage_.all_reduce(data, deadline()));
}

void PartLinks::swap(std::span<const std::span<const float>> out, std::span<const std::span<float>> in) {
  const Waiting waiting(*this);
  const auto count = static_cast<std::size_t>(stage_.size());
  const auto self = static_cast<std::size_t>(stage_.position());
  const Clock::time_point until = deadline();
  std::deque<Transfer> transfers;
  for (std::size_t i = 0; i < count; ++i) {
    for_each_piece(i == self ? std::span<float>() : in[i], most_floats_of_a_piece_, [&](std::span<float> piece) {
      fabric_.receive(transfers.emplace_back(), stage_.members()[i], stage_.peer_tag(swapped_in_[i]++),
                      std::as_writable_bytes(piece));
    });
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::span<const float> data = i == self ? std::span<const float>() : out[i];
    for_each_piece(data, most_floats_of_a_piece_, [&](std::span<const float> piece) {
      fabric_.send(transfers.emplace_back(), stage_.members()[i], stage_.peer_tag(swapped_out_[i]++),
                   std::as_bytes(piece));
    });
  }
  Outcome first;
  for (Transfer& transfer : transfers) {
    if (!first.ok()) {
      fabric_.cancel(transfer);
    } else {
      first = fabric_.wait(transfer, until);
    }
  }
  expect(first);
}

void PartLinks::send(int value, bool gradient, int stage, std::span<const float> data) {
  progress();
  for_each_piece(data, most_floats_of_a_piece_, [&](std::span<const float> piece) {
    send_piece(rank_at(stage), next_tag(value, gradient, true), piece);
  });
}

void PartLinks::send_piece(Rank peer, Tag tag, std::span<const float> data) {
  auto free = std::ranges::find_if(
      outgoing_, [&](const auto& one) { return !one->is_open() && one->room() >= data.size_bytes(); });
  if (free == outgoing_.end()) {
    outgoing_.push_back(std::make_unique<Outgoing>(fabric_));
    free = outgoing_.end() - 1;
  }
  (*free)->send(peer, tag, data);
  ++open_;
}

void PartLinks::progress() {
  if (open_ == 0) {
    return;
  }
  for (const auto& one : outgoing_) {
    if (one->is_open() && one->end_if_sent()) {
      --open_;
    }
  }
}

void PartLinks::receive(int value, bool gradient, int stage, std::span<float> data) {
  const Waiting waiting(*this);
  for_each_piece(data, most_floats_of_a_piece_, [&](std::span<float> piece) {
    receive_piece(rank_at(stage), next_tag(value, gradient, false), piece);
  });
}

void PartLinks::receive_piece(Rank peer, Tag tag, std::span<float> data) {
  Transfer transfer;
  const Clock::time_point began = Clock::now();
  fabric_.receive(transfer, peer, tag, std::as_writable_bytes(data));
  // What others still have to get comes first.
  try {
    while (open_ > 0 && !fabric_.progress(transfer) && Clock::now() < began + patience_) {
      progress();
      if (Clock::now() < began + kYieldFor) {
        sched_yield();
      } else {
        std::this_thread::sleep_for(kNap);
      }
    }
  } catch (...) {
    fabric_.cancel(transfer);
    throw;
  }
  expect(fabric_.wait(transfer, began + patience_));
}

void PartLinks::share(LossSums& sums) {
  const Waiting waiting(*this);
  const int last = (stages() - 1) * tensor_;
  expect(all_.broadcast(std::as_writable_bytes(std::span(&sums, 1)), last, deadline()));
}

void PartLinks::share_from_first(std::span<std::byte> data) {
  const Waiting waiting(*this);
  expect(all_.broadcast(data, 0, deadline()));
}

void PartLinks::share_in_stage(std::span<float> data) {
  const Waiting waiting(*this);
  expect(stage_.broadcast(std::as_writable_bytes(data), 0, deadline()));
}

double PartLinks::sum_of_all(double here) {
  sum_of_all(std::span(&here, 1));
  return here;
}

void PartLinks::sum_of_all(std::span<double> numbers) {
  const Waiting waiting(*this);
  expect(all_.all_reduce(numbers, deadline()));
}

}  // namespace distbelief
