#include "cluster/straggler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/simulated_job.h"

namespace distbelief {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Ms = std::chrono::milliseconds;

TEST(FindStragglers, NamesTheCauseThatTakesSoMuchLonger) {
  using Cause = Straggler::Cause;
  const StepTimes usual = {100, 1.0, 0.1, 0.1};
  const auto found = [&](const StepTimes& odd) {
    return find_stragglers(std::vector<WorkerTimes>{{1, usual}, {2, usual}, {3, odd}, {4, usual}}, 1.5);
  };
  const std::vector<std::pair<StepTimes, Cause>> cases = {{{100, 3.4, 0.1, 0.1}, Cause::computes},
                                                          {{100, 1.0, 2.5, 0.1}, Cause::loads},
                                                          {{100, 1.2, 0.1, 2.3}, Cause::link}};
  for (const auto& [odd, cause] : cases) {
    ASSERT_THAT(found(odd), SizeIs(1));
    EXPECT_EQ(found(odd)[0].worker, 3U);
    EXPECT_EQ(found(odd)[0].cause, cause);
    EXPECT_NEAR(found(odd)[0].factor, 3.0, 1e-9);
  }
  EXPECT_THAT(found({100, 1.5, 0.1, 0.1}), IsEmpty());
  EXPECT_THAT(found({50, 0.6, 0.05, 0.05}), IsEmpty());  // it makes fewer steps, each as fast
}

TEST(FindStragglers, NobodyIsSlowWhoIsAloneOrMadeNoStepOrHasNothingToDo) {
  EXPECT_THAT(find_stragglers(std::vector<WorkerTimes>{{1, {10, 5, 0, 0}}}, 1.5), IsEmpty());
  EXPECT_THAT(find_stragglers(std::vector<WorkerTimes>{{1, {10, 5, 0, 0}}, {2, {}}}, 1.5), IsEmpty());
  EXPECT_THAT(find_stragglers(std::vector<WorkerTimes>{{1, {1000, 0.3, 0, 0}}, {2, {1000, 0.1, 0, 0}}}, 1.5),
              IsEmpty());
}

/// Three workers and a launcher; each has made a step every 100 ms, for which it computed so long.
class SlowJob : public testing::Test {
 protected:
  SlowJob() : job(JobRules{.workers = 3, .has_launcher = true}) {
    launcher = job.join(control::LAUNCHER);
    job.beating = {launcher};
    for (ConnectionId& worker : workers) {
      worker = job.join();
      job.beating.insert(worker);
    }
  }
  void train(int steps, double slow) {
    for (int i = 0; i < steps; ++i) {
      for (std::size_t worker = 0; worker < 3; ++worker) {
        StepTimes& times = job.times[workers[worker]];
        ++times.steps;
        times.computed += worker == 1 ? slow : 0.02;
        job.steps[workers[worker]] = times.steps;
      }
      job.pass(Ms(100));
    }
  }
  std::string notices() {
    std::string text;
    for (const control::Notice& notice : job.take<control::Notice>(launcher)) {
      text += notice.text() + "\n";
    }
    return text;
  }

  SimulatedJob job;
  ConnectionId launcher;
  std::array<ConnectionId, 3> workers;
};

TEST_F(SlowJob, AStragglerIsToldOnceAndWhenItIsOver) {
  train(80, 0.06);
  EXPECT_EQ(notices(), "");
  train(80, 0.06);
  EXPECT_EQ(notices(),
            "worker 1 (pid 1003 on alpha) takes 3.0 times as long for a step as the others: it computes slower\n");
  const auto rows = job.state().status(job.now());
  EXPECT_THAT(rows.members(2).slow(), HasSubstr("3.0 times as long"));
  EXPECT_EQ(rows.members(1).slow(), "");
  train(200, 0.06);
  EXPECT_EQ(notices(), "");
  train(200, 0.02);
  EXPECT_EQ(notices(), "worker 1 (pid 1003 on alpha) is no longer slower than the others\n");
  EXPECT_EQ(job.state().status(job.now()).members(2).slow(), "");
}

TEST(StragglerWatch, TellsAgainWhenTheCauseIsAnother) {
  StragglerWatch watch(std::chrono::seconds(2));
  Clock::time_point now = {};
  std::vector<WorkerTimes> workers = {{1, {}}, {2, {}}};
  std::vector<Straggler::Cause> told;
  for (int second = 0; second < 20; ++second) {
    for (const StragglerWatch::News& news : watch.look(workers, now)) {
      told.push_back(news.straggler.value().cause);
    }
    now += std::chrono::seconds(1);
    for (WorkerTimes& worker : workers) {
      worker.times.steps += 10;
      worker.times.computed += worker.worker == 2 && second < 10 ? 0.5 : 0.1;
      worker.times.loaded += worker.worker == 2 && second >= 10 ? 0.5 : 0;
    }
  }
  EXPECT_THAT(told, testing::ElementsAre(Straggler::Cause::computes, Straggler::Cause::loads));
}

TEST_F(SlowJob, WhoIsSlowForAMomentIsNotNamed) {
  for (int i = 0; i < 10; ++i) {
    train(20, 0.06);
    train(110, 0.02);
  }
  EXPECT_EQ(notices(), "");
}

TEST_F(SlowJob, WithAnotherSetOfWorkersTheWatchBeginsAnew) {
  train(80, 0.06);
  job.exit(launcher, workers[0], 9);
  job.close(workers[0]);
  job.beating.erase(workers[0]);
  train(80, 0.06);
  EXPECT_EQ(notices(), "");
  train(60, 0.06);
  EXPECT_THAT(notices(), HasSubstr("takes 3.0 times as long"));
}

}  // namespace
}  // namespace distbelief
