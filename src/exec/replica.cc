#include "exec/replica.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/parallel.h"
#include "exec/replica_lane.h"
#include "tensor/vector_ops.h"

namespace distbelief {

Replica::Replica(const Graph& graph, const ParameterTable& table, ReplicaOptions options)
    : graph_(graph), table_(table), options_(options), values_(float_buffer(table.size())) {
  check(options.gradient_rows == GradientRows::all || (options.threads == 1 && options.micro_batches == 1),
        "touched rows are those of one program");
  check(options.links == nullptr || options.mode == ThreadMode::kernels, "parts of a network have one lane");
  const int lanes = options.mode == ThreadMode::lanes ? options.threads : 1;
  for (int i = 0; i < lanes; ++i) {
    lanes_.push_back(std::make_unique<Lane>());
    lanes_.back()->number = i;
  }
}

Replica::~Replica() = default;

StepContext Replica::context(const Batch& batch, std::int64_t first, std::int64_t rows, bool training) const {
  return {.training = training,
          .seed = options_.seed,
          .epoch = batch.epoch,
          .sample_ids = std::span(batch.ids).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(rows)),
          .exchange = options_.links};
}

Program& Replica::program(Lane& lane, std::int64_t rows, Purpose purpose, std::size_t place) {
  if (place >= lane.slots.size()) {
    lane.slots.resize(place + 1);
  }
  Lane::Slot& slot = lane.slots[place];
  for (const auto& known : slot.programs) {
    if (known->rows() == rows && known->purpose() == purpose) {
      return *known;
    }
  }
  if (purpose == Purpose::training) {
    allocate_gradient(lane);
  }
  slot.programs.push_back(std::make_unique<Program>(graph_, table_, rows, purpose, options_.gradient_rows));
  Program& made = *slot.programs.back();
  if (made.arena_bytes() > slot.arena.bytes()) {
    slot.arena = Buffer();  // let the old one go before the new one comes
    slot.arena = Buffer(made.arena_bytes());
    for (const auto& known : slot.programs) {
      known->bind(slot.arena.data(), values().data(), lane.gradient.as<float>().data());
    }
  } else {
    made.bind(slot.arena.data(), values().data(), lane.gradient.as<float>().data());
  }
  return made;
}

template <typename Work>
void Replica::for_each_lane(std::int64_t rows, const Work& work) {
  const auto count = static_cast<int>(std::min<std::int64_t>(rows, static_cast<std::int64_t>(lanes_.size())));
  const auto run = [&](int i) {
    const std::int64_t first = rows * i / count;
    const std::int64_t end = rows * (i + 1) / count;
    Lane& lane = *lanes_[static_cast<std::size_t>(i)];
    try {
      work(lane, first, end - first);
    } catch (...) {
      lane.error = std::current_exception();
    }
  };
  set_thread_count(options_.threads);
  if (options_.mode == ThreadMode::lanes) {
    parallel_lanes(count, run);
  } else {
    run(0);
  }
  for (const auto& lane : lanes_) {
    if (lane->error) {
      std::rethrow_exception(std::exchange(lane->error, nullptr));
    }
  }
}

std::vector<std::span<float>> Replica::gradient_memory(std::int64_t rows) {
  std::vector<std::span<float>> memory;
  const std::int64_t most = std::max<std::int64_t>(rows, 1);
  for (std::size_t i = 0; i < lanes_.size() && static_cast<std::int64_t>(i) < most; ++i) {
    memory.push_back(allocate_gradient(*lanes_[i]));
  }
  return memory;
}

std::span<float> Replica::allocate_gradient(Lane& lane) const {
  if (lane.gradient.bytes() == 0) {
    lane.gradient = Buffer::zeroed(values_.bytes());
  }
  return lane.gradient.as<float>();
}

template <typename Work>
void Replica::for_each_micro_batch(Lane& lane, const Batch& batch, std::int64_t first, std::int64_t rows,
                                   const Work& work) {
  const std::int64_t parts = std::min(options_.micro_batches, rows);
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t begin = first + rows * part / parts;
    const std::int64_t count = first + rows * (part + 1) / parts - begin;
    Program& compiled = program(lane, count, Purpose::training);
    compiled.load(batch, begin);
    work(compiled, context(batch, begin, count, true), part, parts);
  }
}

LossSums Replica::compute_gradient(const Batch& batch, GradientListener* listener) {
  check(options_.gradient_rows == GradientRows::all, "touched rows are prepared");
  const ComputeWatch::Span computes(options_.watch);
  if (options_.links != nullptr) {
    return compute_part_gradient(batch, listener);
  }
  for_each_lane(batch.size(), [&](Lane& lane, std::int64_t first, std::int64_t rows) {
    allocate_gradient(lane);
    Accumulator accumulator(lane, table_.optimized_size(), listener);
    lane.sums = {};
    for_each_micro_batch(lane, batch, first, rows,
                         [&](Program& compiled, const StepContext& step, std::int64_t part, std::int64_t parts) {
                           compiled.forward(step);
                           lane.sums += compiled.evaluate_loss();
                           if (parts == 1) {
                             compiled.backward(step, listener, lane.number);
                           } else if (part + 1 < parts) {
                             compiled.backward(step);
                             accumulator.keep(part == 0);
                           } else {
                             compiled.backward(step, &accumulator, lane.number);
                             accumulator.finish(parts, table_.optimized_size());
                           }
                         });
  });
  LossSums total;
  gradient_parts_.clear();
  for (std::size_t i = 0; i < lanes_.size() && i < static_cast<std::size_t>(batch.size()); ++i) {
    total += lanes_[i]->sums;
    gradient_parts_.emplace_back(lanes_[i]->gradient.as<float>());
  }
  return total;
}

std::span<const TouchedRows> Replica::prepare(const Batch& batch, std::int64_t first, std::int64_t rows) {
  check(options_.gradient_rows == GradientRows::touched, "the replica is one of touched rows");
  set_thread_count(options_.threads);
  prepared_ = {&program(*lanes_[0], rows, Purpose::training), &batch, first};
  prepared_.program->load(batch, first);
  return prepared_.program->touched_rows();
}

LossSums Replica::compute_prepared() {
  check(prepared_.program != nullptr, "prepare() comes first");
  const ComputeWatch::Span computes(options_.watch);
  Program& compiled = *prepared_.program;
  const StepContext step = context(*prepared_.batch, prepared_.first, compiled.rows(), true);
  compiled.forward(step);
  const LossSums sums = compiled.evaluate_loss();
  compiled.backward(step);
  gradient_parts_.assign(1, lanes_[0]->gradient.as<float>());
  return sums;
}

std::string Replica::find_nonfinite_prepared() {
  if (const std::string name = nonfinite_parameter(); !name.empty()) {
    return "parameter '" + name + "'";
  }
  Program& compiled = *prepared_.program;
  compiled.load(*prepared_.batch, prepared_.first);  // backward may have used the input's memory
  const std::string layer =
      compiled.first_nonfinite_layer(context(*prepared_.batch, prepared_.first, compiled.rows(), true));
  return layer.empty() ? "" : "layer '" + layer + "'";
}

LossSums Replica::evaluate(const Batch& batch) {
  const ComputeWatch::Span computes(options_.watch);
  for_each_lane(batch.size(), [&](Lane& lane, std::int64_t first, std::int64_t rows) {
    Program& compiled = program(lane, rows, Purpose::inference);
    compiled.load(batch, first);
    compiled.forward(context(batch, first, rows, false));
    lane.sums = compiled.evaluate_loss();
  });
  LossSums total;
  for (std::size_t i = 0; i < lanes_.size() && i < static_cast<std::size_t>(batch.size()); ++i) {
    total += lanes_[i]->sums;
  }
  return total;
}

void Replica::predict(const Batch& batch, std::vector<float>& out) {
  const std::int64_t columns = graph_.node(graph_.output()).output.shape.elements();
  const std::size_t before = out.size();
  out.resize(before + static_cast<std::size_t>(batch.size() * columns));
  for_each_lane(batch.size(), [&](Lane& lane, std::int64_t first, std::int64_t rows) {
    Program& compiled = program(lane, rows, Purpose::inference);
    compiled.load(batch, first);
    compiled.forward(context(batch, first, rows, false));
    std::ranges::copy(compiled.prediction(), out.begin() + static_cast<std::ptrdiff_t>(before) + first * columns);
  });
}

std::string Replica::nonfinite_parameter() const {
  for (const ParameterEntry& entry : table_.entries()) {
    if (!all_finite(values().data() + entry.range.begin, entry.range.size())) {
      return entry.name;
    }
  }
  return {};
}

std::string Replica::nonfinite_gradient() const {
  for (const ParameterEntry& entry : table_.entries()) {
    for (const std::span<const float> part : gradient_parts_) {
      if (!all_finite(part.data() + entry.range.begin, entry.range.size())) {
        return entry.name;
      }
    }
  }
  return {};
}

std::string Replica::find_nonfinite(const Batch& batch) {
  const std::string parameter = nonfinite_parameter();
  if (!parameter.empty() && options_.links == nullptr) {  // other parts would wait for this one's values
    return "parameter '" + parameter + "'";
  }
  for_each_lane(batch.size(), [&](Lane& lane, std::int64_t first, std::int64_t rows) {
    lane.nonfinite.clear();
    for_each_micro_batch(
        lane, batch, first, rows,
        [&](Program& compiled, const StepContext& step, std::int64_t /*part*/, std::int64_t /*parts*/) {
          if (lane.nonfinite.empty() || options_.links != nullptr) {
            const std::string layer = compiled.first_nonfinite_layer(step);
            lane.nonfinite = lane.nonfinite.empty() ? layer : lane.nonfinite;
          }
        });
  });
  if (!parameter.empty()) {
    return "parameter '" + parameter + "'";
  }
  for (const auto& lane : lanes_) {
    if (!lane->nonfinite.empty()) {
      return "layer '" + lane->nonfinite + "'";
    }
  }
  return {};
}

std::size_t Replica::bytes() const {
  std::size_t sum = values_.bytes();
  for (const auto& lane : lanes_) {
    sum += lane->gradient.bytes() + lane->earlier.bytes();
    for (const Lane::Slot& slot : lane->slots) {
      sum += slot.arena.bytes();
    }
  }
  return sum;
}

}  // namespace distbelief
