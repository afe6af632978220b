#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exec/gradient_listener.h"
#include "exec/memory_plan.h"
#include "graph/graph.h"
#include "params/parameter_table.h"
#include "params/touched_rows.h"
#include "tensor/batch.h"

namespace distbelief {

/// Which part of its gradients a program writes, where parameters have rows of which a batch needs few: all, zeros
/// included, or the touched rows only, so that nothing in a step walks the whole parameter.
enum class GradientRows { all, touched };

/// A graph compiled for one number of rows: kernels in order, and one arena in which everything between them lives. The
/// arena and the parameters are lent by the caller through bind(). Nothing is allocated in a step. One thread at a
/// time, and the thread count of the thread that compiled it.
class Program {
 public:
  /// Gradients flow only where a parameter that is not frozen in `table` needs them.
  Program(const Graph& graph, const ParameterTable& table, std::int64_t rows, Purpose purpose,
          GradientRows gradient_rows = GradientRows::all);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  std::int64_t rows() const { return rows_; }
  Purpose purpose() const { return purpose_; }
  std::size_t arena_bytes() const { return arena_.bytes; }

  /// `values` and `gradients` are the whole flat space; `gradients` is null for inference. All must stay until bound
  /// again. The arena's contents do not matter.
  void bind(std::byte* arena, const float* values, float* gradients);

  /// Takes rows [first, first + rows()) of the batch as the next input.
  void load(const Batch& batch, std::int64_t first);
  /// Of GradientRows::touched, once after each load(): the rows that forward() will read and backward() write. Valid
  /// until the next load(). Throws InputError for a row that does not exist.
  std::span<const TouchedRows> touched_rows();
  void forward(const StepContext& step);
  /// Compares the prediction with the loaded rows' targets; for training, leaves the gradient for backward(). Zeros
  /// where the graph is a part that has no loss.
  LossSums evaluate_loss();
  /// Writes sums over the rows into the gradients. `listener`, unless null, hears how far they are final, as `lane`.
  void backward(const StepContext& step, GradientListener* listener = nullptr, int lane = 0);

  /// rows × columns after forward(), until the next one.
  std::span<const float> prediction() const;

  /// Runs forward() and returns the first layer whose output is not finite; empty when all are.
  std::string first_nonfinite_layer(const StepContext& step);

 private:
  struct Step;
  class Planner;

  void run_backward_sum(const Step& step);
  void clear_touched_rows(const Step& step);

  const Graph graph_;  ///< fused
  const std::int64_t rows_;
  const Purpose purpose_;
  const GradientRows gradient_rows_;
  Engine engine_;
  std::vector<Step> steps_;  ///< step 0 is the input
  ArenaPlan arena_;
  // Pieces of the arena, as places in arena_.offsets.
  int input_piece_ = -1;
  int loss_gradient_piece_ = -1;
  int scratch_piece_ = -1;
  std::byte* base_ = nullptr;
  float* gradients_ = nullptr;
  std::vector<TouchedRows> touched_;
  SparseView sparse_input_;
  Targets targets_;
};

}  // namespace distbelief
