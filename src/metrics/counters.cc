#include "metrics/counters.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"

namespace distbelief {
namespace {

// One byte a sample.
constexpr std::uint8_t kLeased = 1;
constexpr std::uint8_t kApplied = 2;
constexpr std::uint8_t kDropped = 4;

// A saved ledger: magic, number of samples, ten counters, two bits a sample, number of exceptions, and for each of
// those its id and byte. Two bits say untouched, leased, leased and applied, or see the exceptions.
constexpr std::string_view kMagic = "DBLEDGR1";
constexpr std::uint8_t kPacked[] = {0, kLeased, kLeased | kApplied};
constexpr unsigned kException = 3;

unsigned packed_code(std::uint8_t mark) {
  const auto* found = std::find(std::begin(kPacked), std::end(kPacked), mark);
  return static_cast<unsigned>(found - std::begin(kPacked));  // kException when it is none of them
}

template <typename Audit, typename Visit>
void for_each_counter(Audit& audit, Visit visit) {
  visit(audit.leased);
  visit(audit.applied);
  visit(audit.dropped);
  visit(audit.lost);
  visit(audit.duplicated);
}

/// Takes numbers from the front of bytes and complains when there are too few.
class Cursor {
 public:
  Cursor(std::string_view bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  std::string_view take(std::uint64_t count) {
    require(count <= bytes_.size(), "it ends too early");
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  std::uint64_t number() { return read_little_endian<std::uint64_t>(take(8).data()); }
  bool at_end() const { return bytes_.empty(); }
  void require(bool condition, std::string_view complaint) const {
    if (!condition) {
      throw FileError(fmt::format("{}: expected a sample ledger: {}", file_, complaint));
    }
  }

 private:
  std::string_view bytes_;
  const std::string& file_;
};

}  // namespace

SampleAudit& SampleAudit::operator+=(const SampleAudit& other) {
  leased += other.leased;
  applied += other.applied;
  dropped += other.dropped;
  lost += other.lost;
  duplicated += other.duplicated;
  return *this;
}

SampleLedger::SampleLedger(std::uint64_t samples) : marks_(samples) {}

template <typename Mark>
void SampleLedger::mark_all(std::span<const std::uint64_t> ids, Mark mark) {
  const std::scoped_lock lock(mutex_);
  for (const std::uint64_t id : ids) {
    check(id < marks_.size(), "a sample's id is below the number of samples");
    mark(marks_[id]);
  }
}

void SampleLedger::leased(std::span<const std::uint64_t> ids) {
  mark_all(ids, [this](std::uint8_t& mark) {
    epoch_.leased += (mark & kLeased) == 0 ? 1 : 0;
    mark |= kLeased;
  });
}

void SampleLedger::applied(std::span<const std::uint64_t> ids) {
  mark_all(ids, [this](std::uint8_t& mark) {
    ++((mark & kApplied) == 0 ? epoch_.applied : epoch_.duplicated);
    mark |= kApplied;
  });
}

void SampleLedger::dropped(std::span<const std::uint64_t> ids) {
  mark_all(ids, [this](std::uint8_t& mark) {
    epoch_.dropped += (mark & kDropped) == 0 ? 1 : 0;
    mark |= kDropped;
  });
}

void SampleLedger::returned(std::span<const std::uint64_t> ids) {
  mark_all(ids, [this](std::uint8_t& mark) {
    if ((mark & kApplied) != 0) {
      return;
    }
    epoch_.leased += (mark & kLeased) == 0 ? 1 : 0;
    epoch_.dropped += 1;
    mark &= static_cast<std::uint8_t>(~kLeased);
  });
}

bool SampleLedger::has_applied(std::uint64_t id) const {
  const std::scoped_lock lock(mutex_);
  return (marks_.at(id) & kApplied) != 0;
}

bool SampleLedger::is_settled(std::uint64_t id) const {
  const std::scoped_lock lock(mutex_);
  return (marks_.at(id) & (kApplied | kDropped)) != 0;
}

std::uint64_t SampleLedger::settled() const {
  const std::scoped_lock lock(mutex_);
  return static_cast<std::uint64_t>(
      std::ranges::count_if(marks_, [](std::uint8_t mark) { return (mark & (kApplied | kDropped)) != 0; }));
}

void SampleLedger::reopen_dropped() {
  const std::scoped_lock lock(mutex_);
  for (std::uint8_t& mark : marks_) {
    if ((mark & kDropped) != 0) {
      mark = (mark & kApplied) != 0 ? kLeased | kApplied : 0;
    }
  }
}

SampleAudit SampleLedger::close_epoch() {
  const std::scoped_lock lock(mutex_);
  epoch_.lost += static_cast<std::uint64_t>(std::count(marks_.begin(), marks_.end(), kLeased));
  std::fill(marks_.begin(), marks_.end(), std::uint8_t{0});
  closed_ += epoch_;
  return std::exchange(epoch_, {});
}

SampleAudit SampleLedger::total() const {
  const std::scoped_lock lock(mutex_);
  SampleAudit total = closed_;
  return total += epoch_;
}

SampleAudit SampleLedger::closed() const {
  const std::scoped_lock lock(mutex_);
  return closed_;
}

void SampleLedger::add_closed(const SampleAudit& audit) {
  const std::scoped_lock lock(mutex_);
  closed_ += audit;
}

std::string SampleLedger::save() const { return save_with(closed()); }

std::string SampleLedger::save_epoch() const { return save_with({}); }

std::string SampleLedger::save_with(const SampleAudit& closed) const {
  const std::scoped_lock lock(mutex_);
  std::string saved(kMagic);
  append_little_endian(saved, static_cast<std::uint64_t>(marks_.size()));
  const auto append = [&](std::uint64_t number) { append_little_endian(saved, number); };
  for_each_counter(epoch_, append);
  for_each_counter(closed, append);
  std::string packed((marks_.size() + 3) / 4, '\0');
  std::string exceptions;
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < marks_.size(); ++i) {
    const unsigned code = packed_code(marks_[i]);
    packed[i / 4] = static_cast<char>(static_cast<unsigned char>(packed[i / 4]) | code << (i % 4 * 2));
    if (code == kException) {
      append_little_endian(exceptions, static_cast<std::uint64_t>(i));
      append_little_endian(exceptions, marks_[i]);
      ++count;
    }
  }
  saved += packed;
  append(count);
  return saved + exceptions;
}

std::uint64_t SampleLedger::samples_in(std::string_view saved, const std::string& file) {
  Cursor cursor(saved, file);
  cursor.require(cursor.take(kMagic.size()) == kMagic, "it begins otherwise");
  return cursor.number();
}

void SampleLedger::restore(std::string_view saved, const std::string& file) {
  const std::scoped_lock lock(mutex_);
  Cursor cursor(saved, file);
  cursor.require(cursor.take(kMagic.size()) == kMagic, "it begins otherwise");
  const std::uint64_t samples = cursor.number();
  cursor.require(samples == marks_.size(), fmt::format("it is of {} samples, not of {}", samples, marks_.size()));
  SampleAudit epoch;
  SampleAudit closed;
  const auto read = [&](std::uint64_t& number) { number = cursor.number(); };
  for_each_counter(epoch, read);
  for_each_counter(closed, read);
  std::vector<std::uint8_t> marks(marks_.size());
  const std::string_view packed = cursor.take((marks.size() + 3) / 4);
  for (std::size_t i = 0; i < marks.size(); ++i) {
    const unsigned code = static_cast<unsigned char>(packed[i / 4]) >> (i % 4 * 2) & 3U;
    marks[i] = code == kException ? 0 : kPacked[code];
  }
  for (std::uint64_t left = cursor.number(); left > 0; --left) {
    const std::uint64_t id = cursor.number();
    cursor.require(id < marks.size(), "it names a sample that does not exist");
    marks[id] = static_cast<std::uint8_t>(cursor.take(1).front());
  }
  cursor.require(cursor.at_end(), "it goes on after its end");
  marks_ = std::move(marks);
  epoch_ = epoch;
  closed_ = closed;
}

void SampleLedger::take_over_epoch(std::string_view saved, const std::string& file) {
  const SampleAudit before = closed();
  check(total() == before, "an epoch that has not begun here");
  restore(saved, file);
  const std::scoped_lock lock(mutex_);
  closed_ += before;
}

}  // namespace distbelief
