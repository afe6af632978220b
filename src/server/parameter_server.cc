#include "server/parameter_server.h"

#include <algorithm>

#include "base/check.h"
#include "tensor/vector_ops.h"

namespace distbelief {

ParameterServer::ParameterServer(const ParameterTable& table, const BlockMap& map, const std::vector<int>& owned,
                                 const UpdateRule& rule, std::span<const float> values, Options options)
    : options_(std::move(options)) {
  blocks_.reserve(owned.size());
  for (const int number : owned) {
    Block& block = blocks_.emplace_back();
    block.range = map.blocks()[static_cast<std::size_t>(number)].range;
    block.place = floats_;
    block.values = float_buffer(block.range.size());
    const auto from =
        values.subspan(static_cast<std::size_t>(block.range.begin), static_cast<std::size_t>(block.range.size()));
    std::ranges::copy(from, block.values.as<float>().begin());
    block.shard = std::make_unique<ParameterShard>(table, block.range, rule, block.values.as<float>());
    if (options_.keeps_vectors && !map.blocks()[static_cast<std::size_t>(number)].averaged) {
      block.vectors = std::make_unique<RangeVectors>(table, block.range, block.values.as<float>());
    }
    floats_ += from.size();
  }
}

ReplyHead ParameterServer::push(const RequestHead& head, std::span<const std::uint64_t> seen,
                                std::span<const float> gradient) {
  check(gradient.size() == floats_, "a push has a part for every block");
  return push(head, seen, [&](const Block& block, const UpdateOptions& options, Version block_seen) {
    const std::span<const float> part = gradient.subspan(block.place, block.size());
    if (block.vectors) {
      return block.shard->take(
          head.push, [&] { block.vectors->add_to_gradient(part, head.scale); }, block_seen);
    }
    if (options_.keeps_vectors && !all_finite(part.data(), std::ssize(part))) {  // of a step that was too long
      return block.shard->take(
          head.push, [] {}, block_seen);
    }
    return block.shard->apply(head.push, std::span(&part, 1), head.scale, options, block_seen);
  });
}

ReplyHead ParameterServer::push(const RequestHead& head, std::span<const std::uint64_t> seen,
                                std::span<const FloatRun> runs, std::span<const float> gradient) {
  return push(head, seen, [&](const Block& block, const UpdateOptions& options, Version block_seen) {
    const FloatRuns own = take_runs_of(block, runs);
    const std::size_t floats = floats_of_runs(own.runs);
    const GradientRuns part = {.places = own, .floats = gradient.first(floats)};
    gradient = gradient.subspan(floats);
    if (block.vectors) {
      return block.shard->take(
          head.push, [&] { block.vectors->add_to_gradient(part, head.scale); }, block_seen);
    }
    return block.shard->apply(head.push, part, head.scale, options, block_seen);
  });
}

FloatRuns ParameterServer::take_runs_of(const Block& block, std::span<const FloatRun>& runs) {
  std::size_t count = 0;
  while (count < runs.size() && runs[count].begin < block.end_place()) {
    ++count;
  }
  const FloatRuns own = {.runs = runs.first(count), .origin = static_cast<std::uint32_t>(block.place)};
  runs = runs.subspan(count);
  return own;
}

std::optional<std::size_t> ParameterServer::floats_of(std::span<const FloatRun> runs) const {
  std::size_t floats = 0;
  std::uint64_t end = 0;
  std::size_t block = 0;
  for (const FloatRun& run : runs) {
    while (block < blocks_.size() && blocks_[block].end_place() <= run.begin) {
      ++block;
    }
    if (run.count == 0 || run.begin < end || block == blocks_.size() || run.end() > blocks_[block].end_place()) {
      return {};
    }
    end = run.end();
    floats += run.count;
  }
  return floats;
}

ReplyHead ParameterServer::push(const RequestHead& head, std::span<const std::uint64_t> seen,
                                const ApplyToBlock& apply_to_block) {
  check(seen.size() == blocks_.size(), "a push names a version of every block");
  {
    const std::scoped_lock lock(pushes_mutex_);
    if (over_ || fenced_.contains(head.incarnation)) {
      return {.status = over_ ? ReplyHead::Status::over : ReplyHead::Status::fenced};
    }
    pushing_.insert(head.incarnation);
    idle_.erase(head.incarnation);
  }
  ReplyHead reply = {.status = ReplyHead::Status::late};
  if (const auto entered = enter(); !options_.max_staleness || !is_late(head, seen)) {
    reply = apply(head, seen, apply_to_block);
  }
  const std::scoped_lock lock(pushes_mutex_);
  pushing_.erase(pushing_.find(head.incarnation));
  pushed_.notify_all();
  return reply;
}

/// Blocks that have the push already do not matter: they do not take it again.
bool ParameterServer::is_late(const RequestHead& head, std::span<const std::uint64_t> seen) const {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const ParameterShard& shard = *blocks_[i].shard;
    if (shard.version().value > seen[i] + *options_.max_staleness && shard.next_seq(head.push.lease) <= head.push.seq) {
      return true;
    }
  }
  return false;
}

ReplyHead ParameterServer::apply(const RequestHead& head, std::span<const std::uint64_t> seen,
                                 const ApplyToBlock& apply_to_block) {
  {
    const std::scoped_lock lock(leases_mutex_);
    leases_.emplace(head.push.lease, head.lease);
    if (head.low_water <= head.push.lease) {  // the lease itself is not done
      raise_low_water_locked(head.low_water);
    }
  }
  ReplyHead reply;
  bool finite = true;
  bool early = false;
  const int absent = this->absent();
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const UpdateReport report = apply_to_block(blocks_[i], options_of(*blocks_[i].shard, absent), Version{seen[i]});
    early = early || report.result == ApplyResult::stale;
    if (report.result == ApplyResult::applied) {
      reply.blocks += 1;
      reply.staleness_sum += report.staleness;
      reply.staleness_most = std::max(reply.staleness_most, report.staleness);
      finite = finite && report.finite;
    }
  }
  reply.status = early                                   ? ReplyHead::Status::early
                 : !finite                               ? ReplyHead::Status::nonfinite
                 : reply.blocks == 0 && !blocks_.empty() ? ReplyHead::Status::duplicate
                                                         : ReplyHead::Status::done;
  return reply;
}

void ParameterServer::raise_low_water_locked(std::uint64_t low_water) {
  if (low_water <= low_water_) {
    return;
  }
  low_water_ = low_water;
  const auto end = leases_.lower_bound(low_water_);
  if (marked_) {
    done_.insert(leases_.begin(), end);
  }
  leases_.erase(leases_.begin(), end);
  for (const Block& block : blocks_) {
    block.shard->prune_leases(low_water_);
  }
}

void ParameterServer::run_vectors(std::span<const VectorOrder> orders, std::uint64_t low_water,
                                  std::span<double> dots) {
  {
    const std::scoped_lock lock(leases_mutex_);
    raise_low_water_locked(low_water);
  }
  const bool writes = std::ranges::any_of(
      orders, [](const VectorOrder& order) { return order.kind != VectorOrder::Kind::dot && order.to == kValues; });
  std::ranges::fill(dots, 0.0);
  for (const Block& block : blocks_) {
    if (block.vectors) {
      block.shard->rewrite([&] {
        block.vectors->run(orders, dots);
        return writes;
      });
    }
  }
}

std::unique_lock<std::mutex> ParameterServer::enter() const {
  return options_.max_staleness ? std::unique_lock(entering_) : std::unique_lock<std::mutex>();
}

int ParameterServer::absent() {
  const std::scoped_lock lock(pushes_mutex_);
  return static_cast<int>(idle_.size() + fenced_.size()) - static_cast<int>(admitted_.size());
}

UpdateOptions ParameterServer::options_of(const ParameterShard& shard, int absent) const {
  UpdateOptions options = options_.update(shard.pushes(), absent);
  options.rate *= rate_factor_;
  return options;
}

bool ParameterServer::flush() {
  bool finite = true;
  for (const Block& block : blocks_) {
    UpdateOptions options = options_of(*block.shard, 0);
    options.gather = 1;
    finite = block.shard->flush(options) && finite;
  }
  return finite;
}

bool ParameterServer::flush_full() {
  const auto entered = enter();
  const int absent = this->absent();
  bool finite = true;
  for (const Block& block : blocks_) {
    finite = block.shard->flush(options_of(*block.shard, absent)) && finite;
  }
  return finite;
}

bool ParameterServer::idle(std::uint64_t incarnation) {
  {
    const std::scoped_lock lock(pushes_mutex_);
    if (!fenced_.contains(incarnation)) {
      idle_.insert(incarnation);
    }
  }
  return flush_full();
}

bool ParameterServer::newer_than(std::span<const std::uint64_t> have) {
  check(have.size() == blocks_.size(), "a client has a version of every block");
  {
    const std::scoped_lock lock(pushes_mutex_);
    if (over_) {
      return true;
    }
  }
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (have[i] != kNothing && blocks_[i].shard->version().value <= have[i]) {
      return false;
    }
  }
  return true;
}

void ParameterServer::slow_down(float factor) {
  float before = rate_factor_;
  while (!rate_factor_.compare_exchange_weak(before, before * factor)) {
  }
}

std::size_t ParameterServer::read(std::span<const std::uint64_t> have, std::span<std::uint64_t> versions,
                                  std::span<float> values) const {
  check(have.size() == blocks_.size() && versions.size() == blocks_.size() && values.size() >= floats_,
        "a fetch has room for every block");
  const auto entered = enter();
  std::size_t written = 0;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const ParameterShard& shard = *blocks_[i].shard;
    const std::uint64_t version = shard.version().value;
    versions[i] = version;
    if (have[i] == kNothing || version > have[i]) {
      const auto size = static_cast<std::size_t>(blocks_[i].range.size());
      versions[i] = shard.read(values.subspan(written, size)).value;
      written += size;
    }
  }
  return written;
}

std::size_t ParameterServer::read(std::span<const FloatRun> runs, std::span<std::uint64_t> versions,
                                  std::span<float> values) const {
  check(versions.size() == blocks_.size(), "a fetch has room for every block");
  const auto entered = enter();
  std::size_t written = 0;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const FloatRuns own = take_runs_of(blocks_[i], runs);
    const std::size_t floats = floats_of_runs(own.runs);
    versions[i] = blocks_[i].shard->read(own, values.subspan(written, floats)).value;
    written += floats;
  }
  return written;
}

void ParameterServer::admit(std::uint64_t incarnation) {
  const std::scoped_lock lock(pushes_mutex_);
  admitted_.insert(incarnation);
}

void ParameterServer::fence(std::uint64_t incarnation) {
  std::unique_lock lock(pushes_mutex_);
  fenced_.insert(incarnation);
  idle_.erase(incarnation);
  pushed_.wait(lock, [&] { return !pushing_.contains(incarnation); });  // for as long as an update takes
}

void ParameterServer::end() {
  const std::scoped_lock lock(pushes_mutex_);
  over_ = true;
}

std::uint64_t ParameterServer::next_push(std::uint64_t lease) const {
  std::uint64_t lowest = ~std::uint64_t{0};
  for (const Block& block : blocks_) {
    lowest = std::min(lowest, block.shard->next_seq(lease));
  }
  return lowest;
}

SavedLeases ParameterServer::leases() const {
  SavedLeases known;
  const std::scoped_lock lock(leases_mutex_);
  known.low_water = low_water_;
  for (const auto& [lease, samples] : leases_) {
    known.leases.push_back({lease, samples, next_push(lease)});
  }
  return known;
}

std::vector<PushId> ParameterServer::open_leases() const {
  std::vector<PushId> open;
  const std::scoped_lock lock(leases_mutex_);
  for (const auto& [lease, samples] : leases_) {
    open.push_back({lease, next_push(lease)});
  }
  return open;
}

}  // namespace distbelief
