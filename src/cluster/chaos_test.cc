#include "cluster/chaos.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/test_folder.h"

namespace distbelief {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Writes down what it is asked to do.
class RecordedTools : public ChaosTools {
 public:
  std::function<void()> inject(const Fault& fault) override {
    const std::string peer = fault.peer ? std::to_string(fault.peer->value) : "all";
    const char* kinds[] = {"delay", "slow", "drop", "cut"};
    done.push_back(std::string(kinds[static_cast<int>(fault.kind)]) + " " + peer);
    return [this, peer] { done.push_back("lift " + peer); };
  }
  void cut_control(Clock::time_point /*until*/) override { done.push_back("cut control"); }
  void set_slowness(double factor) override { done.push_back("slow " + std::to_string(static_cast<int>(factor))); }
  void kill() override { done.push_back("kill"); }
  void kill_coordinator(const ChaosEvent& event) override { done.push_back("coordinator: " + event.text); }
  void fill_disk(Clock::time_point until) override {
    done.push_back(until == Clock::time_point::max() ? "disk" : "disk for a while");
  }
  void stop(std::chrono::milliseconds duration) override { done.push_back("stop " + std::to_string(duration.count())); }

  std::vector<std::string> take() { return std::exchange(done, {}); }
  std::vector<std::string> done;
};

class ChaosTest : public testing::Test {
 protected:
  Chaos make(std::string_view script, int self) {
    return {parse_chaos(script).placed(2),
            {.self = self,
             .marks = folder.path() / "chaos-done",
             .note = [this](const std::string& text) { notes.push_back(text); }},
            tools};
  }
  ClusterTestFolder folder;
  RecordedTools tools;
  std::vector<std::string> notes;
};

TEST_F(ChaosTest, LastingEffectsBeginAndEndWithTheirSteps) {
  Chaos chaos = make("slow worker 1 x5 from step 2 to step 3", 1);
  chaos.before_step({.step = 1});
  EXPECT_THAT(tools.take(), IsEmpty());
  chaos.before_step({.step = 2});
  chaos.before_step({.step = 3});
  EXPECT_THAT(tools.take(), ElementsAre("slow 5"));
  chaos.before_step({.step = 4});
  EXPECT_THAT(tools.take(), ElementsAre("slow 1"));
  EXPECT_THAT(notes, ElementsAre("chaos: worker 1 slowed x5 from step 2", "chaos: worker 1 slowed x5 until step 3"));
}

TEST_F(ChaosTest, AShareOfTheRunIsReachedOnce) {
  Chaos chaos = make("kill worker 1 at 40%; slow worker 1 x5 from 50%", 1);
  chaos.before_step({.step = 7, .share = 0.39});
  EXPECT_THAT(tools.take(), IsEmpty());
  chaos.before_step({.step = 8, .share = 0.41});
  chaos.before_step({.step = 9, .share = 0.45});
  EXPECT_THAT(tools.take(), ElementsAre("kill"));
  make("kill worker 1 at 40%", 1).before_step({.step = 10, .share = 0.5});  // the same run, resumed
  EXPECT_THAT(tools.take(), IsEmpty());
  chaos.before_step({.step = 11, .share = 0.5});
  EXPECT_THAT(tools.take(), ElementsAre("slow 5"));
  EXPECT_THAT(notes, ElementsAre("chaos: worker 1 killed at step 8 (40% of the run)",
                                 "chaos: worker 1 slowed x5 from step 11 (50% of the run)"));
}

TEST_F(ChaosTest, AResumedRunEntersALastingEffect) {
  Chaos chaos = make("delay link 0-2 by 10ms from step 5", 2);
  chaos.before_step({.step = 70});
  EXPECT_THAT(tools.take(), ElementsAre("delay 0"));
  EXPECT_THAT(notes, IsEmpty());  // the other end speaks
}

TEST_F(ChaosTest, WhoeverIsNotConcernedDoesNothing) {
  Chaos chaos =
      make("slow worker 1 x5; delay link 0-2 by 10ms; cut worker 2 for 10s at step 1; kill worker 1 at step 1", 3);
  chaos.before_step({.step = 1});
  EXPECT_THAT(tools.take(), IsEmpty());
  EXPECT_THAT(notes, IsEmpty());
}

TEST_F(ChaosTest, AWorkersDelayIsOnBothEndsOfItsLinks) {
  make("delay worker 1 by 1ms", 1).before_step({.step = 1});
  EXPECT_THAT(tools.take(), ElementsAre("delay all"));
  make("delay worker 1 by 1ms", 0).before_step({.step = 1});
  EXPECT_THAT(tools.take(), ElementsAre("delay 1"));
}

TEST_F(ChaosTest, ACutWorkerLosesBothPlanes) {
  make("cut worker 1 for 10s at step 4", 1).before_step({.step = 4});
  EXPECT_THAT(tools.take(), ElementsAre("cut all", "cut control"));
  EXPECT_THAT(notes, ElementsAre("chaos: worker 1 cut for 10 s at step 4"));
}

TEST_F(ChaosTest, AKillHappensOnceInARun) {
  make("kill worker 1 at step 4", 1).before_step({.step = 4});
  EXPECT_THAT(tools.take(), ElementsAre("kill"));
  EXPECT_THAT(notes, ElementsAre("chaos: worker 1 killed at step 4"));
  Chaos again = make("kill worker 1 at step 4; kill worker 1 at step 5", 1);  // as after a restart
  again.before_step({.step = 3});
  again.before_step({.step = 4});
  EXPECT_THAT(tools.take(), IsEmpty());
  again.before_step({.step = 5});
  EXPECT_THAT(tools.take(), ElementsAre("kill"));
}

TEST_F(ChaosTest, ServersAreCountedForThemselves) {
  make("kill server 0 at 40%; stop server 1 for 2s at 50%", 2).before_step({.step = 3, .share = 0.6});
  EXPECT_THAT(tools.take(), ElementsAre("kill"));  // of two workers the first server's rank is 2
  EXPECT_THAT(notes, ElementsAre("chaos: server 0 killed at step 3 (40% of the run)"));
}

TEST_F(ChaosTest, EverybodySeesToTheCoordinatorAndTheDiskAndOneSaysSo) {
  for (const int self : {0, 1}) {
    Chaos chaos = make("kill coordinator at 40%; disk full for 2s at 50%; disk full at 70%", self);
    chaos.before_step({.step = 3, .share = 0.45});
    EXPECT_THAT(tools.take(), ElementsAre("coordinator: kill coordinator at 40%"));
    chaos.before_step({.step = 4, .share = 0.9});
    chaos.before_step({.step = 5, .share = 0.95});
    EXPECT_THAT(tools.take(), ElementsAre("disk for a while", "disk"));
  }
  EXPECT_THAT(notes, ElementsAre("chaos: coordinator killed at step 3 (40% of the run)",
                                 "chaos: disk full for 2 s at step 4 (50% of the run)",
                                 "chaos: disk full for good at step 4 (70% of the run)"));
}

TEST_F(ChaosTest, WithoutAPlaceToWriteARestartIsPeaceful) {
  Chaos chaos(parse_chaos("kill worker 1 at step 4; slow worker 1 x2"), {.self = 1, .once_is_past = true}, tools);
  chaos.before_step({.step = 4});
  EXPECT_THAT(tools.take(), ElementsAre("slow 2"));
}

}  // namespace
}  // namespace distbelief
