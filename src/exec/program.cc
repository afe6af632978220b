#include "exec/program.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "exec/program_planner.h"
#include "graph/layers/reordering.h"
#include "plan/parameter_layout.h"
#include "tensor/vector_ops.h"

namespace distbelief {
namespace {

/// Brings a value into plain order for a layer that wants it so, and its gradient back.
class ReorderKernel : public Kernel {
 public:
  ReorderKernel(const Engine& engine, const ValueLayout& input)
      : Kernel(plain_value(input.spec.shape), {.backward_reads_inputs = false}),
        engine_(engine),
        there_(engine, input.layout, output_.layout),
        back_(engine, output_.layout, input.layout) {}

  void bind(const KernelMemory& memory) override {
    there_.bind(engine_, memory.inputs[0], memory.output);
    if (!memory.input_gradients.empty() && memory.input_gradients[0] != nullptr) {
      back_.bind(engine_, memory.output_gradient, memory.input_gradients[0]);
    }
  }
  void forward(const StepContext& /*step*/) override { there_.run(engine_); }
  void backward(const StepContext& /*step*/) override { back_.run(engine_); }

 private:
  const Engine& engine_;
  Reordering there_;
  Reordering back_;
};

}  // namespace

Program::Program(const Graph& graph, const ParameterTable& table, std::int64_t rows, Purpose purpose,
                 GradientRows gradient_rows)
    : graph_(graph.fused()), rows_(rows), purpose_(purpose), gradient_rows_(gradient_rows) {
  check(rows > 0, "a program needs rows");
  const ValueSpec& input = graph_.node(0).output;
  ValueLayout input_layout{{input.shape.with_batch(rows), input.kind}, {}};
  if (input.kind == ValueKind::dense) {
    input_layout.layout = plain_layout(input_layout.spec.shape);
  }
  steps_.push_back({.name = "input", .layout = input_layout});

  std::vector<int> place(graph_.nodes().size(), 0);  // the step that makes each node's value
  const auto plain_step = [&](int step) {
    Step& made = steps_[static_cast<std::size_t>(step)];
    if (made.layout.spec.kind != ValueKind::dense || made.layout.is_plain()) {
      return step;
    }
    auto kernel = std::make_unique<ReorderKernel>(engine_, made.layout);
    ValueLayout layout = kernel->output();
    steps_.push_back({.name = made.name, .layout = std::move(layout), .kernel = std::move(kernel), .inputs = {step}});
    return static_cast<int>(steps_.size()) - 1;
  };
  for (NodeId id = 1; id <= graph_.output(); ++id) {
    const Node& node = graph_.node(id);
    Step step{.name = node.name};
    std::vector<ValueLayout> inputs;
    for (const NodeId from : node.inputs) {
      int source = place[static_cast<std::size_t>(from)];
      if (!node.layer->accepts_any_layout()) {
        source = plain_step(source);
      }
      step.inputs.push_back(source);
      inputs.push_back(steps_[static_cast<std::size_t>(source)].layout);
    }
    for (const ParameterSpec& spec : node.layer->parameters(graph_.input_specs(id, rows))) {
      const ParameterEntry& entry = table.at(parameter_name(node, spec));
      step.parameter_offsets.push_back(entry.range.begin);
      step.trains = step.trains || (spec.kind == ParameterKind::optimized && !entry.frozen);
      if (gradient_rows == GradientRows::touched && spec.row_floats > 0) {
        step.parameters_with_rows.push_back(&entry);
        step.rows = std::make_unique<RowSet>(entry.range.size() / spec.row_floats);
      }
    }
    step.kernel = node.layer->compile(engine_, inputs, purpose);
    step.layout = step.kernel->output();
    steps_.push_back(std::move(step));
    place[static_cast<std::size_t>(id)] = static_cast<int>(steps_.size()) - 1;
  }
  plain_step(static_cast<int>(steps_.size()) - 1);

  Planner planner(steps_, purpose, graph_.has_loss());
  arena_ = planner.plan();
  input_piece_ = steps_[0].output_piece;
  loss_gradient_piece_ = planner.loss_gradient_piece();
  scratch_piece_ = planner.scratch_piece();
}

Program::~Program() = default;

void Program::bind(std::byte* arena, const float* values, float* gradients) {
  base_ = arena;
  gradients_ = gradients;
  const auto piece = [&](int index) {
    return index < 0 ? nullptr : arena + arena_.offsets[static_cast<std::size_t>(index)];
  };
  const auto floats = [&](int index) { return reinterpret_cast<float*>(piece(index)); };
  for (std::size_t i = 1; i < steps_.size(); ++i) {
    Step& step = steps_[i];
    KernelMemory memory;
    for (const int input : step.inputs) {
      const Step& source = steps_[static_cast<std::size_t>(input)];
      memory.inputs.push_back(source.layout.spec.kind == ValueKind::sparse ? static_cast<const void*>(&sparse_input_)
                                                                           : piece(source.output_piece));
    }
    memory.output = floats(step.output_piece);
    memory.workspace = piece(step.workspace_piece);
    memory.scratch = piece(scratch_piece_);
    memory.touched_rows_only = gradient_rows_ == GradientRows::touched;
    for (const std::int64_t offset : step.parameter_offsets) {
      memory.parameters.push_back(values + offset);
      memory.parameter_gradients.push_back(gradients == nullptr ? nullptr : gradients + offset);
    }
    if (purpose_ == Purpose::training) {
      memory.output_gradient = floats(step.gradient_piece);
      memory.second_output_gradient = floats(step.second_gradient_piece);
      for (const int input_gradient : step.input_gradient_pieces) {
        memory.input_gradients.push_back(floats(input_gradient));
      }
    }
    step.kernel->bind(memory);
  }
}

void Program::load(const Batch& batch, std::int64_t first) {
  const ValueSpec& input = steps_[0].layout.spec;
  const std::int64_t width = input.shape.elements() / rows_;
  const auto begin = static_cast<std::size_t>(first);
  const auto count = static_cast<std::size_t>(rows_);
  switch (input.kind) {
    case ValueKind::dense:
      std::memcpy(base_ + arena_.offsets[static_cast<std::size_t>(input_piece_)], batch.dense.data() + first * width,
                  static_cast<std::size_t>(rows_ * width) * sizeof(float));
      break;
    case ValueKind::indices:
      std::memcpy(base_ + arena_.offsets[static_cast<std::size_t>(input_piece_)], batch.indices.data() + first * width,
                  static_cast<std::size_t>(rows_ * width) * sizeof(std::int32_t));
      break;
    case ValueKind::sparse:
      sparse_input_ = {&batch.sparse, first, rows_};
      break;
  }
  targets_ = {};
  if (!batch.classes.empty()) {
    targets_.classes = std::span(batch.classes).subspan(begin, count);
  }
  if (!batch.targets.empty()) {
    const std::size_t targets_width = batch.targets.size() / batch.ids.size();
    targets_.values = std::span(batch.targets).subspan(begin * targets_width, count * targets_width);
  }
}

std::span<const TouchedRows> Program::touched_rows() {
  touched_.clear();
  for (Step& step : steps_) {
    if (step.rows != nullptr) {
      step.touched = step.rows->distinct(step.kernel->rows_read());
      for (const ParameterEntry* parameter : step.parameters_with_rows) {
        touched_.push_back({parameter, step.touched});
      }
    }
  }
  return touched_;
}

void Program::clear_touched_rows(const Step& step) {
  for (const ParameterEntry* parameter : step.parameters_with_rows) {
    const TouchedRows touched = {parameter, step.touched};
    for (const std::int32_t row : touched.rows) {
      std::fill_n(gradients_ + touched.offset(row), touched.row_floats(), 0.0F);
    }
  }
}

void Program::forward(const StepContext& step) {
  for (std::size_t i = 1; i < steps_.size(); ++i) {
    steps_[i].kernel->forward(step);
    if (step.exchange != nullptr) {
      step.exchange->progress();
    }
  }
}

std::span<const float> Program::prediction() const {
  const Step& last = steps_.back();
  return {reinterpret_cast<const float*>(base_ + arena_.offsets[static_cast<std::size_t>(last.output_piece)]),
          static_cast<std::size_t>(last.layout.spec.shape.elements())};
}

LossSums Program::evaluate_loss() {
  if (!graph_.has_loss()) {
    return {};
  }
  const std::span<const float> scores = prediction();
  float* gradient =
      loss_gradient_piece_ < 0
          ? nullptr
          : reinterpret_cast<float*>(base_ + arena_.offsets[static_cast<std::size_t>(loss_gradient_piece_)]);
  return graph_.loss().evaluate(scores.data(), rows_, static_cast<std::int64_t>(scores.size()) / rows_, targets_,
                                gradient);
}

void Program::run_backward_sum(const Step& step) {
  const auto at = [&](int piece) {
    return reinterpret_cast<float*>(base_ + arena_.offsets[static_cast<std::size_t>(piece)]);
  };
  const std::int64_t count = step.layout.stored_floats();
  const float* sum = at(step.gradients_to_add[0]);
  for (std::size_t i = 1; i < step.gradients_to_add.size(); ++i) {
    add(sum, at(step.gradients_to_add[i]), at(step.gradient_piece), count);
    sum = at(step.gradient_piece);
  }
}

void Program::backward(const StepContext& step, GradientListener* listener, int lane) {
  for (std::size_t i = steps_.size(); i-- > 1;) {
    if (steps_[i].runs_backward) {
      if (!steps_[i].gradients_to_add.empty()) {
        run_backward_sum(steps_[i]);
      }
      clear_touched_rows(steps_[i]);
      steps_[i].kernel->backward(step);
      if (step.exchange != nullptr) {
        step.exchange->progress();
      }
      if (listener != nullptr && steps_[i].trains) {
        listener->final_from(lane, std::ranges::min(steps_[i].parameter_offsets));
      }
    }
  }
}

std::string Program::first_nonfinite_layer(const StepContext& step) {
  std::string first;
  for (std::size_t i = 1; i < steps_.size(); ++i) {
    steps_[i].kernel->forward(step);
    const auto* output =
        reinterpret_cast<const float*>(base_ + arena_.offsets[static_cast<std::size_t>(steps_[i].output_piece)]);
    if (first.empty() && !all_finite(output, steps_[i].layout.stored_floats())) {
      first = steps_[i].name;
      if (step.exchange == nullptr) {  // otherwise other parts wait for what follows
        break;
      }
    }
  }
  return first;
}

}  // namespace distbelief
