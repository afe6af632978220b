#include "checkpoint/checkpoint_writer.h"

#include <gtest/gtest.h>

#include <latch>
#include <stdexcept>

#include "base/error.h"

namespace distbelief {
namespace {

CheckpointState state_of(std::int64_t step, std::span<const float> values) {
  CheckpointState state;
  state.manifest.step = step;
  state.values.push_back({.name = "a", .shape = Shape{static_cast<std::int64_t>(values.size())}, .values = values});
  return state;
}

TEST(CheckpointWriter, WritesWhatWasThereWhenItBegan) {
  std::latch changed(1);
  std::vector<std::vector<float>> written;
  CheckpointWriter writer(
      [&](const CheckpointState& state) {
        changed.wait();
        written.emplace_back(state.values[0].values.begin(), state.values[0].values.end());
      },
      {});
  std::vector<float> values = {1, 2, 3};
  writer.begin(state_of(7, values));
  values = {9, 9, 9};  // training goes on
  EXPECT_TRUE(writer.results().empty());
  changed.count_down();
  writer.begin(state_of(8, values));
  writer.wait();
  EXPECT_EQ(written, (std::vector<std::vector<float>>{{1, 2, 3}, {9, 9, 9}}));
  const std::vector<CheckpointWriter::Result> results = writer.results();
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0].step, 7);
  EXPECT_EQ(results[0].problem, "");
  EXPECT_EQ(results[1].step, 8);
  EXPECT_TRUE(writer.results().empty());
}

TEST(CheckpointWriter, TellsWhyOneCannotBeWrittenAndGoesOn) {
  bool full = true;
  int copies = 0;
  CheckpointWriter writer(
      [&](const CheckpointState&) {
        if (full) {
          throw FileError("no space left");
        }
      },
      [&](const CheckpointState&) {
        if (++copies == 2) {
          throw FileError("gone");
        }
      });
  writer.begin(state_of(1, {}));
  writer.wait();
  full = false;
  EXPECT_EQ(writer.write_now(state_of(2, {})).copy_problem, "gone");
  const std::vector<CheckpointWriter::Result> results = writer.results();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].problem, "no space left");
  EXPECT_EQ(results[0].copy_problem, "");  // the second place has it all the same
  EXPECT_EQ(copies, 2);
}

TEST(CheckpointWriter, OtherErrorsEndTheRunThatAsks) {
  CheckpointWriter writer([](const CheckpointState&) { throw std::runtime_error("a bug"); }, {});
  writer.begin(state_of(1, {}));
  writer.wait();
  EXPECT_THROW((void)writer.results(), std::runtime_error);
  EXPECT_TRUE(writer.results().empty());
}

}  // namespace
}  // namespace distbelief
