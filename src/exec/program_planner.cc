#include "exec/program_planner.h"

#include <algorithm>

namespace distbelief {

int Program::Planner::new_piece(std::size_t bytes, int first, int last) {
  pieces_.push_back({bytes, first, last});
  return static_cast<int>(pieces_.size()) - 1;
}

void Program::Planner::extend(int piece, int last) { life(piece).last = std::max(life(piece).last, last); }

ArenaPlan Program::Planner::plan() {
  find_backward_steps();
  place_values();
  if (training_) {
    place_gradients();
  }
  std::size_t scratch = 0;
  for (const Step& step : steps_) {
    scratch = std::max(scratch, step.kernel == nullptr ? 0 : step.kernel->traits().scratch_bytes);
  }
  scratch_piece_ = new_piece(scratch, 0, 2 * count());
  return place_in_arena(pieces_);
}

void Program::Planner::find_backward_steps() {
  wants_gradient_.assign(steps_.size(), false);
  if (!training_) {
    return;
  }
  for (int i = 1; i < count(); ++i) {
    bool wanted = at(i).trains || at(i).kernel->traits().wants_gradient;
    for (const int input : at(i).inputs) {
      wanted = wanted || wants_gradient_[static_cast<std::size_t>(input)];
    }
    wants_gradient_[static_cast<std::size_t>(i)] = wanted;
    at(i).runs_backward = wanted;
  }
}

void Program::Planner::place_values() {
  const int loss_time = count();
  std::vector<int> last_read(steps_.size());
  for (int i = 0; i < count(); ++i) {
    last_read[static_cast<std::size_t>(i)] = i;
  }
  for (int i = 1; i < count(); ++i) {
    const KernelTraits& traits = at(i).kernel->traits();
    for (const int input : at(i).inputs) {
      int& last = last_read[static_cast<std::size_t>(input)];
      last = std::max(last, at(i).runs_backward && traits.backward_reads_inputs ? backward_time(i) : i);
    }
    if (at(i).runs_backward && traits.backward_reads_output) {
      last_read[static_cast<std::size_t>(i)] = std::max(last_read[static_cast<std::size_t>(i)], backward_time(i));
    }
  }
  last_read.back() = std::max(last_read.back(), loss_time);

  for (int i = 0; i < count(); ++i) {
    Step& step = at(i);
    const int last = last_read[static_cast<std::size_t>(i)];
    if (i == 0) {
      const std::size_t bytes = step.layout.spec.kind == ValueKind::sparse
                                    ? 0
                                    : static_cast<std::size_t>(step.layout.spec.shape.elements()) * sizeof(float);
      step.output_piece = new_piece(bytes, 0, last);
      continue;
    }
    const KernelTraits& traits = step.kernel->traits();
    const int input_piece = at(step.inputs[0]).output_piece;
    const std::size_t bytes = step.layout.layout.get_size();
    if (traits.is_view || traits.views_input || (traits.forward_in_place && step.inputs[0] != 0 && life(input_piece).last <= i &&
                           life(input_piece).bytes == bytes)) {
      step.output_piece = input_piece;
      extend(input_piece, last);
    } else {
      step.output_piece = new_piece(bytes, i, last);
    }
    if (traits.workspace_bytes > 0) {
      step.workspace_piece = new_piece(traits.workspace_bytes, i, step.runs_backward ? backward_time(i) : i);
    }
  }
}

void Program::Planner::collect_gradient(int step, const std::vector<int>& contributions) {
  Step& made = at(step);
  const int now = backward_time(step);
  made.gradient_piece = contributions[0];
  if (contributions.size() == 1) {
    return;
  }
  if (contributions.size() == 2 && made.kernel->traits().adds_gradients) {
    made.second_gradient_piece = contributions[1];
    return;
  }
  // Add up inside one of them, unless somebody else still reads each.
  made.gradients_to_add = contributions;
  // One that comes more than once (x + x + x) must stay as it is until all are added.
  const auto free = std::find_if(contributions.begin(), contributions.end(), [&](int piece) {
    return life(piece).last <= now &&
           (contributions.size() == 2 || std::count(contributions.begin(), contributions.end(), piece) == 1);
  });
  if (free != contributions.end()) {
    made.gradient_piece = *free;
    std::iter_swap(made.gradients_to_add.begin(), made.gradients_to_add.begin() + (free - contributions.begin()));
  } else {
    made.gradient_piece = new_piece(life(contributions[0]).bytes, now, now);
  }
}

void Program::Planner::place_gradients() {
  std::vector<std::vector<int>> contributions(steps_.size());
  const int last = count() - 1;
  if (has_loss_ && at(last).runs_backward) {
    loss_gradient_piece_ = new_piece(at(last).layout.layout.get_size(), count(), backward_time(last));
    contributions.back().push_back(loss_gradient_piece_);
  }

  for (int i = last; i > 0; --i) {
    Step& step = at(i);
    step.input_gradient_pieces.assign(step.inputs.size(), -1);
    if (!step.runs_backward) {
      continue;
    }
    const KernelTraits& traits = step.kernel->traits();
    if (!traits.brings_gradient) {
      collect_gradient(i, contributions[static_cast<std::size_t>(i)]);
    }
    const int now = backward_time(i);
    int shared = traits.is_view || traits.passes_gradient ? step.gradient_piece : -1;
    for (std::size_t k = 0; k < step.inputs.size(); ++k) {
      const int input = step.inputs[k];
      if (!wants_gradient_[static_cast<std::size_t>(input)]) {
        if (traits.writes_every_gradient) {
          step.input_gradient_pieces[k] = new_piece(at(input).layout.layout.get_size(), now, now);
        }
        continue;
      }
      int piece = shared;
      const bool in_place =
          traits.backward_in_place && step.gradient_piece >= 0 && (k == 0 || traits.shares_gradient) && life(step.gradient_piece).last <= now;
      if (piece < 0 && in_place) {
        piece = step.gradient_piece;
      }
      if (piece < 0) {
        piece = new_piece(at(input).layout.layout.get_size(), now, now);
      }
      if (traits.shares_gradient) {
        shared = piece;
      }
      extend(piece, backward_time(input));
      step.input_gradient_pieces[k] = piece;
      contributions[static_cast<std::size_t>(input)].push_back(piece);
    }
  }
}

}  // namespace distbelief
