// A parameter server's state as bytes, and back.
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "server/parameter_server.h"
#include "server/state_bytes.h"
#include "tensor/vector_ops.h"

namespace distbelief {
namespace {

constexpr std::size_t kNumbersOfALease = 5;
constexpr auto kFloatsOfAUnit = static_cast<std::uint64_t>(ParameterTable::kAlignment);  // that blocks are cut in
constexpr std::uint64_t kMostArrays = 12;                         // of a block: values, slots, what is gathered
constexpr std::uint64_t kMostOfTheRest = std::uint64_t{1} << 28;  // bytes

/// Passes everything on, and looks at which pushes the block has, and whether its numbers are finite.
class LeaseWatch : public StateVisitor {
 public:
  LeaseWatch(StateVisitor& next, std::string source) : next_(next), source_(std::move(source)) {}
  void floats(std::string_view name, std::span<float> values) override {
    next_.floats(name, values);
    finite_ = finite_ && all_finite(values.data(), std::ssize(values));
  }
  void number(std::string_view name, std::uint64_t& value) override {
    next_.number(name, value);
    low_water_ = name == "low_water" ? value : low_water_;
  }
  void numbers(std::string_view name, std::vector<std::uint64_t>& values) override {
    next_.numbers(name, values);
    if (name == "next_seq") {
      if (values.size() % 2 != 0) {
        throw FileError(source_ + ": expected the state of a parameter server: a lease has no number of pushes");
      }
      for (std::size_t i = 0; i + 1 < values.size(); i += 2) {
        next_seq_[values[i]] = values[i + 1];
      }
    }
  }
  bool finite() const { return finite_; }
  std::uint64_t next_push(std::uint64_t lease) const {
    if (lease < low_water_) {
      return SavedLease::kDone;
    }
    const auto found = next_seq_.find(lease);
    return found == next_seq_.end() ? 0 : found->second;
  }

 private:
  StateVisitor& next_;
  std::string source_;
  bool finite_ = true;
  std::uint64_t low_water_ = 0;
  std::map<std::uint64_t, std::uint64_t> next_seq_;
};

void visit_leases(StateVisitor& visitor, SavedLeases& saved) {
  std::vector<std::uint64_t> numbers;
  for (const SavedLease& lease : saved.leases) {
    numbers.insert(numbers.end(), {lease.id, static_cast<std::uint64_t>(lease.samples.epoch),
                                   static_cast<std::uint64_t>(lease.samples.first),
                                   static_cast<std::uint64_t>(lease.samples.count), lease.next_push});
  }
  visitor.number("lowest_lease", saved.low_water);
  visitor.numbers("leases", numbers);
  saved.leases.clear();
  for (std::size_t i = 0; i + kNumbersOfALease <= numbers.size(); i += kNumbersOfALease) {
    saved.leases.push_back({.id = numbers[i],
                            .samples = {.epoch = static_cast<std::int64_t>(numbers[i + 1]),
                                        .first = static_cast<std::int64_t>(numbers[i + 2]),
                                        .count = static_cast<std::int64_t>(numbers[i + 3])},
                            .next_push = numbers[i + 4]});
  }
}

}  // namespace

SavedLeases saved_leases(std::string_view state, const std::string& source) {
  StateReader reader(state, source);
  SavedLeases saved;
  visit_leases(reader, saved);
  return saved;
}

void for_each_saved_block(std::string_view state, const std::string& source, const ParameterTable& table,
                          const UpdateRule& rule, bool keeps_vectors, const BlockVisit& visit) {
  StateReader reader(state, source);
  SavedLeases saved;
  visit_leases(reader, saved);
  std::uint64_t factor = 0;
  reader.number("rate_factor", factor);
  while (!reader.at_end()) {
    std::vector<std::uint64_t> numbers;
    reader.numbers("block", numbers);
    if (numbers.size() != 2 || numbers[0] >= numbers[1] || numbers[1] > static_cast<std::uint64_t>(table.size()) ||
        numbers[0] % kFloatsOfAUnit != 0 || numbers[1] % kFloatsOfAUnit != 0) {
      throw FileError(source + ": expected the state of a parameter server of this network: a block is of none");
    }
    const Range range = {static_cast<std::int64_t>(numbers[0]), static_cast<std::int64_t>(numbers[1])};
    const Buffer values = float_buffer(range.size());
    ParameterShard block(table, range, rule, values.as<float>());
    LeaseWatch watch(reader, source);
    block.visit_values_and_state(watch);
    std::optional<RangeVectors> vectors;
    if (keeps_vectors && range.end <= table.optimized_size()) {
      vectors.emplace(table, range, values.as<float>()).visit_state(watch);
    }
    visit(block, vectors ? &*vectors : nullptr);
  }
}

void ParameterServer::visit_blocks(const BlockVisit& visit) const {
  for (const Block& block : blocks_) {
    visit(*block.shard, block.vectors.get());
  }
}

void ParameterServer::Block::visit_state(StateVisitor& visitor, bool all) const {
  shard->visit_values_and_state(visitor);
  if (vectors) {
    shard->rewrite([&] {
      vectors->visit_state(visitor, all);
      return false;
    });
  }
}

void ParameterServer::set_values(std::span<const float> values) {
  check(values.size() == floats_, "values for every block");
  for (Block& block : blocks_) {
    const auto part = values.first(static_cast<std::size_t>(block.range.size()));
    std::ranges::copy(part, block.values.as<float>().begin());
    values = values.subspan(part.size());
  }
}

void ParameterServer::mark() {
  const std::scoped_lock lock(leases_mutex_);
  marked_ = true;
  done_.clear();  // of a save that never came, or that a backup does not hear of
}

std::optional<std::string> ParameterServer::save() {
  StateWriter blocks;
  std::vector<LeaseWatch> watches;
  for (const Block& block : blocks_) {
    std::vector<std::uint64_t> range = {static_cast<std::uint64_t>(block.range.begin),
                                        static_cast<std::uint64_t>(block.range.end)};
    blocks.numbers("block", range);
    block.visit_state(watches.emplace_back(blocks, "a block"));
  }
  SavedLeases saved;
  {
    // After the blocks: a lease is known here before any block takes something of it.
    const std::scoped_lock lock(leases_mutex_);
    saved.low_water = low_water_;
    for (const auto& [id, samples] : done_) {
      saved.leases.push_back({id, samples, SavedLease::kDone});
    }
    for (const auto& [id, samples] : leases_) {
      saved.leases.push_back({id, samples, SavedLease::kDone});
    }
    marked_ = false;
    done_.clear();
  }
  if (!std::ranges::all_of(watches, &LeaseWatch::finite)) {
    return std::nullopt;
  }
  for (SavedLease& lease : saved.leases) {
    for (const LeaseWatch& watch : watches) {
      lease.next_push = std::min(lease.next_push, watch.next_push(lease.id));
    }
  }
  StateWriter head;
  visit_leases(head, saved);
  auto factor = std::uint64_t{std::bit_cast<std::uint32_t>(rate_factor_.load())};
  head.number("rate_factor", factor);
  return head.take() + blocks.take();
}

void ParameterServer::restore(std::string_view state, const std::string& source) {
  StateReader reader(state, source);
  SavedLeases saved;
  visit_leases(reader, saved);
  std::uint64_t factor = 0;
  reader.number("rate_factor", factor);
  for (const Block& block : blocks_) {
    std::vector<std::uint64_t> range;
    reader.numbers("block", range);
    if (range !=
        std::vector{static_cast<std::uint64_t>(block.range.begin), static_cast<std::uint64_t>(block.range.end)}) {
      throw FileError(source + ": expected the state of a parameter server with other blocks");
    }
    LeaseWatch watch(reader, source);
    block.visit_state(watch);
  }
  reader.expect_end();
  rate_factor_ = std::bit_cast<float>(static_cast<std::uint32_t>(factor));
  const std::scoped_lock lock(leases_mutex_);
  low_water_ = saved.low_water;
  leases_.clear();
  for (const SavedLease& lease : saved.leases) {
    if (lease.next_push != SavedLease::kDone) {  // one that ended while the state was saved goes on
      leases_.emplace(lease.id, lease.samples);
      low_water_ = std::min(low_water_, lease.id);
    }
  }
}

namespace {

void visit_flag(StateVisitor& visitor, std::string_view name, bool& flag) {
  std::uint64_t value = flag ? 1 : 0;
  visitor.number(name, value);
  flag = value != 0;
}

void visit_set(StateVisitor& visitor, std::string_view name, std::set<std::uint64_t>& set) {
  std::vector<std::uint64_t> numbers(set.begin(), set.end());
  visitor.numbers(name, numbers);
  set = {numbers.begin(), numbers.end()};
}

void visit_runs(StateVisitor& visitor, std::string_view name, std::map<std::uint64_t, SampleRun>& runs) {
  constexpr std::size_t kNumbers = 4;
  std::vector<std::uint64_t> numbers;
  for (const auto& [id, run] : runs) {
    numbers.insert(numbers.end(), {id, static_cast<std::uint64_t>(run.epoch), static_cast<std::uint64_t>(run.first),
                                   static_cast<std::uint64_t>(run.count)});
  }
  visitor.numbers(name, numbers);
  runs.clear();
  for (std::size_t i = 0; i + kNumbers <= numbers.size(); i += kNumbers) {
    runs[numbers[i]] = {.epoch = static_cast<std::int64_t>(numbers[i + 1]),
                        .first = static_cast<std::int64_t>(numbers[i + 2]),
                        .count = static_cast<std::int64_t>(numbers[i + 3])};
  }
}

}  // namespace

void ParameterServer::visit_all(StateVisitor& visitor) {
  auto factor = std::uint64_t{std::bit_cast<std::uint32_t>(rate_factor_.load())};
  visitor.number("rate_factor", factor);
  rate_factor_ = std::bit_cast<float>(static_cast<std::uint32_t>(factor));
  {
    const std::scoped_lock lock(pushes_mutex_);
    visit_set(visitor, "fenced", fenced_);
    visit_set(visitor, "idle", idle_);
    visit_set(visitor, "admitted", admitted_);
    visit_flag(visitor, "over", over_);
  }
  {
    const std::scoped_lock lock(leases_mutex_);
    visitor.number("lowest_lease", low_water_);
    visit_runs(visitor, "leases", leases_);
    visit_flag(visitor, "marked", marked_);
    visit_runs(visitor, "done", done_);
  }
  for (const Block& block : blocks_) {
    block.visit_state(visitor, true);
  }
}

std::string ParameterServer::copy() {
  StateWriter writer;
  visit_all(writer);
  return writer.take();
}

void ParameterServer::become(std::string_view state, const std::string& source) {
  StateReader reader(state, source);
  visit_all(reader);
  reader.expect_end();
}

ReplyHead ParameterServer::save_piece(std::uint64_t offset, std::span<std::byte> out) {
  const std::scoped_lock lock(pieces_mutex_);
  if (offset == 0) {
    std::optional<std::string> state = save();
    if (!state) {
      return {.status = ReplyHead::Status::nonfinite};
    }
    saved_ = std::move(*state);
  }
  ReplyHead reply = {.total = saved_.size()};
  if (offset < saved_.size()) {
    reply.body_bytes = std::min(saved_.size() - offset, out.size());
    std::memcpy(out.data(), saved_.data() + offset, reply.body_bytes);
  }
  if (offset + reply.body_bytes >= saved_.size()) {
    saved_ = {};
  }
  return reply;
}

bool ParameterServer::restore_piece(std::uint64_t offset, std::uint64_t total, std::span<const std::byte> piece) {
  const std::scoped_lock lock(pieces_mutex_);
  if (offset == 0) {
    restored_.clear();
  }
  const std::uint64_t arrays = options_.keeps_vectors ? kMostArrays + RangeVectors::kMostVectors : kMostArrays;
  const std::uint64_t most = arrays * floats_ * sizeof(float) + kMostOfTheRest;
  if (offset != restored_.size() || total > most || offset > total || piece.size() > total - offset) {
    return false;
  }
  restored_.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  if (restored_.size() < total) {
    return true;
  }
  const std::string state = std::move(restored_);
  restored_.clear();
  try {
    restore(state, "the state that was sent");
  } catch (const FileError&) {
    return false;
  }
  return true;
}

}  // namespace distbelief
