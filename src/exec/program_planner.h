#pragma once

#include "exec/program.h"
#include "exec/row_set.h"

namespace distbelief {

/// One kernel with the places of all that it reads and writes. Pieces are indices into the arena's plan; -1: none.
struct Program::Step {
  std::string name;
  ValueLayout layout = {};  ///< of the output
  std::unique_ptr<Kernel> kernel = {};
  std::vector<int> inputs = {};  ///< steps
  std::vector<std::int64_t> parameter_offsets = {};
  std::vector<const ParameterEntry*> parameters_with_rows = {};
  std::unique_ptr<RowSet> rows = {};           ///< when there are any and only touched ones are wanted
  std::span<const std::int32_t> touched = {};  ///< of the loaded batch
  bool trains = false;                         ///< has a parameter that is optimized and not frozen

  bool runs_backward = false;
  int output_piece = -1;
  int workspace_piece = -1;
  int gradient_piece = -1;  ///< of the output
  int second_gradient_piece = -1;
  std::vector<int> gradients_to_add = {};  ///< when several readers gave one; the sum goes to gradient_piece
  std::vector<int> input_gradient_pieces = {};
};

/// Decides which memory each value and gradient of a program lives in, from when it is written to when it is last read.
/// Time: forward of step i is i, the loss is n, backward of step i is 2n − i.
class Program::Planner {
 public:
  Planner(std::vector<Step>& steps, Purpose purpose, bool has_loss)
      : steps_(steps), training_(purpose == Purpose::training), has_loss_(has_loss) {}

  /// Fills in the pieces of all steps.
  ArenaPlan plan();
  int loss_gradient_piece() const { return loss_gradient_piece_; }
  int scratch_piece() const { return scratch_piece_; }

 private:
  int count() const { return static_cast<int>(steps_.size()); }
  int backward_time(int step) const { return 2 * count() - step; }
  Step& at(int step) { return steps_[static_cast<std::size_t>(step)]; }
  Lifetime& life(int piece) { return pieces_[static_cast<std::size_t>(piece)]; }
  int new_piece(std::size_t bytes, int first, int last);
  void extend(int piece, int last);

  void find_backward_steps();
  void place_values();
  void place_gradients();
  /// Where the gradient of step i's output is found when its backward runs; fills in what must be added.
  void collect_gradient(int step, const std::vector<int>& contributions);

  std::vector<Step>& steps_;
  const bool training_;
  const bool has_loss_;  ///< of the last step's output
  std::vector<bool> wants_gradient_;  ///< of each step's output
  std::vector<Lifetime> pieces_;
  int loss_gradient_piece_ = -1;
  int scratch_piece_ = -1;
};

}  // namespace distbelief
