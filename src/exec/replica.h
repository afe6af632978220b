#pragma once

#include <memory>
#include <string>
#include <vector>

#include "exec/compute_watch.h"
#include "exec/part_links.h"
#include "plan/pipeline_order.h"
#include "exec/program.h"
#include "exec/thread_mode.h"
#include "tensor/buffer.h"

namespace distbelief {

struct ReplicaOptions {
  int threads = 1;
  ThreadMode mode = ThreadMode::kernels;
  std::uint64_t seed = 1;
  /// A batch is computed in so many nearly equal parts, one after the other, and their gradients are added up: the
  /// memory of activations is that of one part. A batch with fewer rows has fewer parts.
  std::int64_t micro_batches = 1;
  /// touched: for prepare() and compute_prepared(), which read and write only the rows of parameters that a batch
  /// needs. One thread.
  GradientRows gradient_rows = GradientRows::all;
  ComputeWatch* watch = nullptr;  ///< borrowed; told of gradients and evaluations

  // Where the graph is one process's part of a network; threads work inside kernels.
  PartLinks* links = nullptr;  ///< borrowed: to the other parts, which all do the same at the same time
  PipelineOrder order = PipelineOrder::one_forward_one_backward;
  /// Values between the layers of a stage are computed again for backward, instead of being kept for each micro-batch.
  bool recompute = false;
  std::vector<Range> partial_gradients = {};  ///< that are sums over those that share the stage
};

/// One copy of a model in this process, or this process's part of one: its values, and the machinery that turns a batch
/// into a loss and a gradient. It knows no optimizer, and of other processes those only that have the other parts. Programs are compiled the first time a batch size is seen. One thread at a
/// time; uses up to `threads`.
class Replica {
 public:
  /// `table` is borrowed and must outlive the replica. Values are not initialised.
  Replica(const Graph& graph, const ParameterTable& table, ReplicaOptions options);
  ~Replica();

  const Graph& graph() const { return graph_; }
  const ParameterTable& table() const { return table_; }
  const ReplicaOptions& options() const { return options_; }

  /// From now on these processes have the other parts; borrowed. What it was in the middle of is over.
  void relink(PartLinks& links) { options_.links = &links; }

  /// The whole flat space. Write only between calls.
  std::span<float> values() const { return values_.as<float>(); }

  /// Forward and backward over a batch, in micro-batches; the loss is the same in all parts of a network. Throws
  /// ExchangeLost when another part is lost. The gradient is then the sum of gradients(); divide by the
  /// rows of the result.
  /// `listener`, unless null, hears of parts that are final before all of it is.
  LossSums compute_gradient(const Batch& batch, GradientListener* listener = nullptr);
  /// One span over the flat space for each lane that had rows; averaged parameters: what each observed, as the mean of
  /// its micro-batches.
  std::span<const std::span<const float>> gradients() const { return gradient_parts_; }
  /// The memory that gradients() will be of for a batch of so many rows; at least one lane's. The caller may change
  /// what is final: the next compute_gradient() overwrites it.
  std::vector<std::span<float>> gradient_memory(std::int64_t rows);

  /// Of GradientRows::touched: takes rows [first, first + rows) of the batch as the next to be computed, and says which
  /// rows of parameters they need. Valid until the next call. Throws InputError for a row that does not exist.
  std::span<const TouchedRows> prepare(const Batch& batch, std::int64_t first, std::int64_t rows);
  /// Forward and backward over what prepare() took, once; the touched rows must be up to date in values(). The gradient
  /// is gradients()[0], which of parameters with rows has the touched ones; the others are garbage.
  LossSums compute_prepared();
  /// As find_nonfinite(), of what prepare() took.
  std::string find_nonfinite_prepared();

  /// Inference with loss. Leaves values and gradients alone. Of a network in parts, the last stage has the loss, and
  /// share() gives it, or a sum of such, to the others.
  LossSums evaluate(const Batch& batch);
  void share(LossSums& sums) const;
  /// Inference: rows × outputs are appended to `out`.
  void predict(const Batch& batch, std::vector<float>& out);

  /// The first parameter that holds a number that is not finite; empty when none does.
  std::string nonfinite_parameter() const;
  /// The first parameter whose gradient holds one, as compute_gradient() left it; empty when none does.
  std::string nonfinite_gradient() const;
  /// What first holds a number that is not finite: "parameter 'x'" or "layer 'y'"; empty when nothing does.
  std::string find_nonfinite(const Batch& batch);

  /// Memory of activations, workspaces and gradients so far.
  std::size_t bytes() const;

 private:
  struct Lane;
  class Accumulator;
  class PartialSums;
  StepContext context(const Batch& batch, std::int64_t first, std::int64_t rows, bool training) const;
  std::span<float> allocate_gradient(Lane& lane) const;
  /// `slot`: of the programs whose values live at the same time, each has another.
  Program& program(Lane& lane, std::int64_t rows, Purpose purpose, std::size_t slot = 0);
  LossSums compute_part_gradient(const Batch& batch, GradientListener* listener);
  /// Calls work(lane, first row, rows) on each lane that has rows, at the same time.
  template <typename Work>
  void for_each_lane(std::int64_t rows, const Work& work);
  /// Calls work(program, context, part, parts) for each micro-batch of a lane's rows, with the program loaded.
  template <typename Work>
  void for_each_micro_batch(Lane& lane, const Batch& batch, std::int64_t first, std::int64_t rows, const Work& work);

  const Graph graph_;
  const ParameterTable& table_;
  ReplicaOptions options_;
  Buffer values_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<std::span<const float>> gradient_parts_;
  /// What prepare() took.
  struct Prepared {
    Program* program = nullptr;
    const Batch* batch = nullptr;
    std::int64_t first = 0;
  } prepared_;
};

}  // namespace distbelief
