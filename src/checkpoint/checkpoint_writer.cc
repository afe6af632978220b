#include "checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace distbelief {
namespace {

/// Why `place` could not take it; empty: it has.
std::string problem_of(const CheckpointWriter::Place& place, const CheckpointState& state) {
  try {
    if (place) {
      place(state);
    }
  } catch (const FileError& error) {
    return error.what();
  }
  return {};
}

std::size_t floats_in(const std::vector<FloatArray>& arrays) {
  std::size_t floats = 0;
  for (const FloatArray& array : arrays) {
    floats += array.values.size();
  }
  return floats;
}

}  // namespace

CheckpointWriter::CheckpointWriter(Place place, Place copy)
    : place_(std::move(place)), copy_(std::move(copy)), thread_([this](const std::stop_token& stop) { run(stop); }) {}

CheckpointWriter::~CheckpointWriter() { wait(); }

CheckpointWriter::Result CheckpointWriter::bring(const CheckpointState& state) const {
  Result result = {.step = state.manifest.step, .score = state.manifest.score};
  result.problem = problem_of(place_, state);
  result.copy_problem = problem_of(copy_, state);
  return result;
}

CheckpointWriter::Result CheckpointWriter::write_now(const CheckpointState& state) {
  wait();
  return bring(state);
}

void CheckpointWriter::keep(std::vector<FloatArray>& arrays, std::size_t& used) {
  for (FloatArray& array : arrays) {
    check(!array.read, "an array that is in memory");
    const std::span<float> own = std::span(floats_).subspan(used, array.values.size());
    std::ranges::copy(array.values, own.begin());
    array.values = own;
    used += own.size();
  }
}

void CheckpointWriter::begin(CheckpointState state) {
  wait();
  floats_.resize(floats_in(state.values) + floats_in(state.state));
  std::size_t used = 0;
  keep(state.values, used);
  keep(state.state, used);
  const std::scoped_lock lock(mutex_);
  under_way_ = std::move(state);
  changed_.notify_all();
}

void CheckpointWriter::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !under_way_; });
}

std::vector<CheckpointWriter::Result> CheckpointWriter::results() {
  const std::scoped_lock lock(mutex_);
  if (failure_) {
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
  return std::exchange(results_, {});
}

void CheckpointWriter::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return under_way_.has_value(); })) {
    lock.unlock();
    std::optional<Result> result;
    std::exception_ptr failure;
    try {
      result = bring(*under_way_);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (result) {
      results_.push_back(std::move(*result));
    }
    failure_ = failure ? failure : failure_;
    under_way_.reset();
    changed_.notify_all();
  }
}

}  // namespace distbelief
