#include "strategy/hogwild.h"

#include <gtest/gtest.h>

#include <cmath>

#include "strategy/test_member.h"

namespace distbelief {
namespace {

TestOptions hogwild(int threads, const char* rule = "sgd") {
  return {.algorithm = "hogwild", .threads = threads, .rule = rule};
}

/// Trains over so many epochs with `most` updates a call and a rate that falls with each update, or does not; the
/// number of updates that were reported.
std::int64_t train(TestMember& member, int epochs, std::int64_t most, bool falling = true) {
  std::int64_t updates = 0;
  for (int epoch = 0; epoch < epochs;) {
    const auto rate_of = [falling, updates](std::int64_t i) {
      return falling ? 0.1F / static_cast<float>(1 + updates + i) : 0.1F;
    };
    const StepReport report = member.strategy->step(
        member.samples, {.update = {.rate = rate_of(0)}, .most_updates = most, .rate_of = rate_of});
    if (report.outcome == StepReport::Outcome::end_of_epoch) {
      ++epoch;
      continue;
    }
    EXPECT_EQ(report.outcome, StepReport::Outcome::stepped) << report.culprit;
    EXPECT_LE(report.updates, most);
    updates += report.updates;
  }
  return updates;
}

constexpr std::int64_t kUpdatesAnEpoch = (kSamples + kBatch - 1) / kBatch;

TEST(Hogwild, OneThreadGivesTheBitsOfLocalHoweverManyUpdatesACallMakes) {
  for (const bool batch_norm : {false, true}) {
    for (const char* rule : {"sgd", "adagrad"}) {
      TestOptions options = {.algorithm = "local", .batch_norm = batch_norm, .rule = rule};
      TestMember local(options);
      EXPECT_EQ(train(local, 3, 1), 3 * kUpdatesAnEpoch);
      options.algorithm = "hogwild";
      for (const std::int64_t most : {1, 3, 1000}) {
        TestMember member(options);
        EXPECT_EQ(train(member, 3, most), 3 * kUpdatesAnEpoch);
        EXPECT_EQ(member.values(), local.values()) << rule << ", " << most << " updates a call";
        EXPECT_TRUE(member.samples.exactly(3));
      }
    }
  }
}

TEST(Hogwild, ThreadsApplyEachSampleOnceAndLearn) {
  for (const bool locked : {false, true}) {
    for (const int threads : {2, 3}) {
      TestOptions options = hogwild(threads);
      options.locked = locked;
      TestMember member(options);
      const LossSums first = member.train_epoch();
      EXPECT_EQ(first.rows, kSamples);
      EXPECT_EQ(train(member, 20, 1000, false), 20 * kUpdatesAnEpoch);
      EXPECT_TRUE(member.samples.exactly(21));
      const LossSums last = member.train_epoch();
      EXPECT_LT(last.loss, 0.8 * first.loss);
    }
  }
}

TEST(Hogwild, StopsAtANumberThatIsNotFiniteAndDropsItsBatch) {
  for (const int threads : {1, 2}) {
    TestMember member(hogwild(threads));
    member.samples.poisoned_sample = 40;  // of the third batch
    const StepReport report = member.strategy->step(member.samples, {.update = {.rate = 0.1F}, .most_updates = 1000});
    EXPECT_EQ(report.outcome, StepReport::Outcome::diverged);
    EXPECT_FALSE(std::isfinite(report.sums.loss));
    EXPECT_EQ(report.culprit, "layer 'dense1'");
    EXPECT_EQ(member.samples.dropped_samples, static_cast<std::size_t>(kBatch));
    EXPECT_EQ(member.samples.applied_times[40], 0);
    EXPECT_TRUE(member.replica.nonfinite_parameter().empty());
    if (threads == 1) {
      EXPECT_EQ(report.updates, 3);
    }
  }
}

TEST(Hogwild, NamesAParameterThatAnUpdateBroke) {
  TestMember member(hogwild(1));
  const StepReport report = member.strategy->step(
      member.samples, {.update = {.rate = std::numeric_limits<float>::infinity()}, .most_updates = 1000});
  EXPECT_EQ(report.outcome, StepReport::Outcome::diverged);
  EXPECT_NE(report.culprit.find("parameter '"), std::string::npos) << report.culprit;
}

TEST(Hogwild, GoesOnFromItsState) {
  TestMember through(hogwild(1, "adagrad")), before(hogwild(1, "adagrad")), after(hogwild(1, "adagrad"));
  train(through, 4, 1000, false);
  train(before, 2, 1000, false);
  StateKeeper keeper;
  before.strategy->visit_state(keeper);
  keeper.gives_back = true;
  after.strategy->visit_state(keeper);
  std::ranges::copy(before.replica.values(), after.replica.values().begin());
  train(after, 2, 1000, false);
  EXPECT_EQ(after.values(), through.values());
}

}  // namespace
}  // namespace distbelief
