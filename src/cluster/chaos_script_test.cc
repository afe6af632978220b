#include "cluster/chaos_script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "cluster/chaos_effects.h"

namespace distbelief {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;

std::string error_of(std::string_view text) {
  try {
    (void)parse_chaos(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ChaosScript, ReadsTheExampleOfTheManual) {
  const auto script = parse_chaos(
      "slow worker 1 x5 from step 100; delay link 0-2 by 10ms; cut worker 2 for 10s at step 300; kill worker 1 at step "
      "200");
  ASSERT_THAT(script.events, SizeIs(4));
  const ChaosEvent& slow = script.events[0];
  EXPECT_EQ(slow.effect->name, "slow");
  EXPECT_EQ(slow.subject.first, 1);
  EXPECT_EQ(slow.factor, 5);
  EXPECT_EQ(slow.first_step, 100);
  EXPECT_EQ(slow.last_step, std::numeric_limits<std::int64_t>::max());
  const ChaosEvent& delay = script.events[1];
  EXPECT_EQ(describe(delay.subject), "link 0-2");
  EXPECT_EQ(delay.delay, milliseconds(10));
  EXPECT_EQ(delay.most_delay, milliseconds(10));
  EXPECT_EQ(delay.first_step, 1);
  const ChaosEvent& cut = script.events[2];
  EXPECT_EQ(cut.duration, std::chrono::seconds(10));
  EXPECT_EQ(cut.first_step, 300);
  EXPECT_EQ(cut.last_step, 300);
  EXPECT_EQ(script.events[3].text, "kill worker 1 at step 200");
  EXPECT_TRUE(script.touches_links());
}

TEST(ChaosScript, ReadsEveryEffectAndTime) {
  const auto script = parse_chaos(
      " delay worker 0 by 1.5ms up to 2m from step 3 to step 9;;drop link 2-1 2.5%;stop worker 2 for 3s at step 1 ; "
      "cut "
      "link 0-1;");
  ASSERT_THAT(script.events, SizeIs(4));
  EXPECT_EQ(script.events[0].delay, microseconds(1500));
  EXPECT_EQ(script.events[0].most_delay, std::chrono::minutes(2));
  EXPECT_EQ(script.events[0].last_step, 9);
  EXPECT_EQ(describe(script.events[1].subject), "link 1-2");
  EXPECT_DOUBLE_EQ(script.events[1].probability, 0.025);
  EXPECT_EQ(script.events[2].duration, std::chrono::seconds(3));
  EXPECT_FALSE(script.events[3].duration);
  EXPECT_EQ(script.events[3].last_step, 1);
  EXPECT_THAT(parse_chaos("  ; ").events, SizeIs(0));
  EXPECT_FALSE(parse_chaos("slow worker 0 x2").touches_links());
}

TEST(ChaosScript, ATimeMayBeAShareOfTheRun) {
  const auto script = parse_chaos("kill worker 1 at 40%; slow worker 0 x2 from 12.5%; cut link 0-1 at 50%");
  EXPECT_DOUBLE_EQ(script.events[0].share.value(), 0.4);
  EXPECT_DOUBLE_EQ(script.events[1].share.value(), 0.125);
  const auto places = script.rendezvous();
  ASSERT_THAT(places, SizeIs(1));  // the others need nobody to be at a certain sample
  EXPECT_EQ(places[0].worker, 1);
  EXPECT_EQ(error_of("kill worker 1 at 140%"), "column 18: expected more than 0% and at most 100%, got '140%'");
  EXPECT_EQ(error_of("kill worker 1 at x%"), "column 18: expected a part of the run's samples, such as 40%, got 'x%'");
  EXPECT_EQ(error_of("slow worker 1 x2 from 40% to 50%"), "column 27: expected ';' or the end, got 'to'");
}

TEST(ChaosScript, ErrorsNameColumnWordAndWhatWasExpected) {
  EXPECT_EQ(error_of("slw worker 1 x5"),
            "column 1: expected slow, delay, drop, cut, kill, stop, disk, got 'slw'; did you mean 'slow'?");
  EXPECT_EQ(error_of("slow link 0-1 x5"), "column 6: expected 'worker N', got 'link'");
  EXPECT_EQ(error_of("cut wire 0"), "column 5: expected 'worker N' or 'link A-B', got 'wire'");
  EXPECT_EQ(error_of("kill worker one at step 2"), "column 13: expected a worker's number, got 'one'");
  EXPECT_EQ(error_of("kill worker 1;slow worker 1 x2"), "column 14: expected 'at step N' or 'at P%', got the end");
  EXPECT_EQ(error_of("kill worker 1 from step 2"), "column 15: expected 'at step N' or 'at P%', got 'from'");
  EXPECT_EQ(error_of("slow worker 1 5"), "column 15: expected how many times as slow, such as x5, got '5'");
  EXPECT_EQ(error_of("slow worker 1 x0.5"), "column 15: expected a factor from x1 to x1000000, got 'x0.5'");
  EXPECT_EQ(error_of("delay link 0-2 by 10"), "column 19: expected a time such as 10ms, 2s or 1m, got '10'");
  EXPECT_EQ(error_of("delay link 0-2 by -3s"), "column 19: expected a time such as 10ms, 2s or 1m, got '-3s'");
  EXPECT_EQ(error_of("delay link 0-2 by 3s up to 2s"), "column 28: expected at least 3 s, got '2s'");
  EXPECT_EQ(error_of("delay link 02 by 3s"), "column 12: expected two workers such as 0-2, got '02'");
  EXPECT_EQ(error_of("delay link 2-2 by 3s"), "column 12: expected two different workers, got '2-2'");
  EXPECT_EQ(error_of("drop link 0-1 200%"), "column 15: expected more than 0% and at most 100%, got '200%'");
  EXPECT_EQ(error_of("slow worker 1 x5 at step 0"), "column 26: expected a step's number, counted from 1, got '0'");
  EXPECT_EQ(error_of("slow worker 1 x5 from step 9 to step 8"), "column 38: expected a step of 9 or later, got '8'");
  EXPECT_EQ(error_of("slow worker 1 x5 at step 3 please"), "column 28: expected ';' or the end, got 'please'");
  EXPECT_EQ(error_of("cut worker 1 from step 2"), "column 14: expected 'at step N', 'at P%' or ';', got 'from'");
  EXPECT_EQ(error_of("stop worker 1 at step 2"), "column 15: expected 'for', got 'at'");
  EXPECT_THAT(error_of("slow worker 1 x" + std::string(500, '9')), StartsWith("column 15: expected"));
  EXPECT_THAT(error_of("a\nb"), HasSubstr("got 'a'"));
}

TEST(ChaosScript, WorkersMustBeThere) {
  const auto refusal = [](std::string_view text, int workers, bool threads, int servers = 0) -> std::string {
    try {
      parse_chaos(text).check_fit({.workers = workers, .servers = servers, .workers_are_threads = threads});
    } catch (const InputError& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(refusal("slow worker 0 x2; kill worker 3 at step 1", 3, false),
            "--chaos: column 31: there is no worker 3: they are 0 to 2");
  EXPECT_EQ(refusal("cut link 0-2", 2, false), "--chaos: column 10: there is no worker 2: they are 0 to 1");
  EXPECT_THAT(refusal("cut worker 0 for 1s", 1, false), HasSubstr("one worker has none"));
  EXPECT_EQ(refusal("delay link 0-2 by 1ms; cut worker 0 for 1s", 1, false, 2), "");
  EXPECT_EQ(refusal("delay link 0-3 by 1ms", 1, false, 2),
            "--chaos: column 12: there is no worker 3: they are only 0, and servers come after them");
  EXPECT_THAT(refusal("kill worker 1 at step 1", 1, false, 2), HasSubstr("there is no worker 1"));
  EXPECT_THAT(refusal("kill worker 1 at step 2", 2, true), HasSubstr("needs a worker that is a process"));
  EXPECT_THAT(refusal("cut worker 1", 2, true), HasSubstr("needs a worker that is a process"));
  EXPECT_EQ(refusal("cut link 0-1 for 1s; slow worker 1 x2; drop worker 1 1%", 2, true), "");
  EXPECT_EQ(refusal("kill worker 1 at step 2; cut worker 0", 2, false), "");
}

TEST(ChaosScript, ThingsHappenToServersTheCoordinatorAndTheDiskToo) {
  const auto script =
      parse_chaos(
          "kill server 1 at 40%; kill coordinator at 60%; stop server 0 for 2s at step 9; disk full for 1s at 5%")
          .placed(3);
  ASSERT_THAT(script.events, SizeIs(4));
  EXPECT_EQ(describe(script.events[0].subject), "server 1");
  EXPECT_EQ(script.events[0].subject.first, 4);  // its rank
  EXPECT_EQ(describe(script.events[1].subject), "coordinator");
  EXPECT_EQ(describe(script.events[3].subject), "disk");
  EXPECT_EQ(script.events[3].duration, std::chrono::seconds(1));
  EXPECT_THAT(script.rendezvous(), SizeIs(0));
  EXPECT_EQ(error_of("kill cordinator at 5%"),
            "column 6: expected 'worker N', 'server N' or 'coordinator', got 'cordinator'");
  EXPECT_EQ(error_of("disk empty at 5%"), "column 6: expected 'full', got 'empty'");
  EXPECT_EQ(error_of("disk full"), "column 10: expected 'at step N' or 'at P%', got the end");
  EXPECT_THROW(parse_chaos("kill server 2 at 5%").check_fit({.workers = 3, .servers = 2}), InputError);
  EXPECT_THROW(parse_chaos("kill coordinator at 5%").check_fit({.has_coordinator = false}), InputError);
  parse_chaos("kill server 1 at 5%; kill coordinator at 5%").check_fit({.workers = 1, .servers = 2});
}

}  // namespace
}  // namespace distbelief
