// Teams whose network is cut, and which grow and shrink by whole copies of it while they train: ranks are threads.
#include "train/test_cut_team.h"

namespace distbelief {
namespace {

using Wish = TestViews::Wish;

constexpr CutGrid kOneByStages = {"one copy of 2 stages", 1, 2, 1, "hidden2", ""};
constexpr CutGrid kOneByTensor = {"one copy over 2 workers", 1, 1, 2, "", "hidden1=outputs,hidden2=inputs"};

class CopiesOfTeam : public CutTeam {
 protected:
  /// What a job does that nobody disturbs, and at which of rank 0's messages something is wished: in the middle.
  void begin(const CutGrid& grid) {
    with = config(grid);
    with.checkpoint_every = 1000;
    undisturbed = train(with, {});
    loss = loss_of(undisturbed, grid);
    middle = undisturbed.ends[0].posts / 2;
  }
  /// Each of `victims` dies at many messages of a run with this wish. `left`: how many may train at its end.
  void expect_to_survive(const Wish& wish, int standbys, const std::set<int>& victims, const std::set<int>& left) {
    const CutRun usual = train(with, {}, standbys, {{middle, wish}});
    for (const int victim : victims) {
      const int posts = usual.ends[static_cast<std::size_t>(victim)].posts;
      std::set<int> moments = moments_of_death(posts, 2, 6);
      for (int i = 0; i < tries(24); ++i) {  // around the wish, and what comes of it
        moments.insert(victim < with.workers ? middle - 4 + i : 1 + i);
      }
      for (const int moment : moments) {
        const std::map<int, int> deaths = {{victim, moment}};
        const CutRun run = train(with, deaths, standbys, {{middle, wish}});
        const std::string& status = run.ends[static_cast<std::size_t>(victim)].summary.status;
        if (status != "lost") {
          continue;  // it had fewer to post
        }
        ASSERT_NE(run.leader(), nullptr) << "rank " << victim << " died at message " << moment;
        const int at_end = run.leader()->summary.workers_at_end;
        if (moment >= posts - 8 && !left.contains(at_end)) {
          continue;  // all was written, and some had left
        }
        EXPECT_TRUE(left.contains(at_end)) << at_end << ": rank " << victim << " died at message " << moment;
        expect_whole(run, deaths, at_end, loss, fmt::format("rank {} died at message {} of {}", victim, moment, posts));
      }
    }
  }

  RunConfig with;
  CutRun undisturbed;
  std::optional<double> loss;
  int middle = 0;
};

TEST_F(CopiesOfTeam, GrowWhenEnoughHaveComeForOneMoreAndSaySo) {
  for (const CutGrid& grid : {kOneByStages, kOneByTensor, kTwoByStages}) {
    begin(grid);
    const int workers = grid.workers();
    const CutRun run = train(with, {}, 2, {{middle, {.come = 2}}});
    expect_whole(run, {}, workers + 2, loss, grid.name);
    ASSERT_EQ(run.notes.size(), 1U);
    EXPECT_TRUE(run.notes[0].starts_with(fmt::format("rank {} joined; rank {} joined: {} copies go on after step ",
                                                     workers, workers + 1, grid.replicas + 1)))
        << run.notes[0];
    EXPECT_NE(run.notes[0].find(fmt::format("; now {} copies of ", grid.replicas + 1)), std::string::npos);
    EXPECT_EQ(run.leader()->summary.events.size(), 2U);
    EXPECT_EQ(run.count("finished"), workers + 2);
  }
}

TEST_F(CopiesOfTeam, LeaveWithTheWorkerThatIsToLeaveAndSaySo) {
  for (const CutGrid& grid : {kTwoByStages, kTwoByTensor}) {
    begin(grid);
    for (const int leaver : {3, 0}) {  // the leader too
      const CutRun run = train(with, {}, 0, {{middle, {.leave = {leaver}}}});
      expect_whole(run, {}, 2, loss, fmt::format("{}: rank {} leaves", grid.name, leaver));
      EXPECT_EQ(run.count("left"), 2);
      ASSERT_EQ(run.notes.size(), 1U);
      EXPECT_TRUE(run.notes[0].starts_with(
          fmt::format("rank {} leaves: copy {} of 2 is given up, worker {} ends; one copy goes on after step ", leaver,
                      leaver / 2 + 1, leaver == 3 ? 2 : 1)))
          << run.notes[0];
      EXPECT_EQ(run.leader()->summary.events.size(), 2U);
    }
  }
}

TEST_F(CopiesOfTeam, AreAsManyAsAreWanted) {
  begin(kTwoByStages);
  const CutRun run = train(with, {}, 0, {{middle, {.most_workers = 2}}});
  expect_whole(run, {}, 2, loss, "4 to 2 workers");
  EXPECT_EQ(run.count("left"), 2);
  ASSERT_EQ(run.notes.size(), 1U);
  EXPECT_TRUE(run.notes[0].starts_with("copy 2 of 2 is given up, workers 2, 3 end; one copy goes on after step "))
      << run.notes[0];
}

TEST_F(CopiesOfTeam, ComeAndGoOneAfterTheOther) {
  begin(kOneByStages);
  std::map<int, Wish> wishes;
  CutRun run = undisturbed;
  int last = 0;
  for (const Wish& wish : {Wish{.come = 2}, Wish{.leave = {3}}, Wish{.come = 2}}) {
    last += (run.ends[0].posts - last) / (4 - static_cast<int>(wishes.size()));  // what is left is in equal parts
    wishes[last] = wish;
    run = train(with, {}, 4, wishes);
  }
  expect_whole(run, {}, 4, loss, "1 to 2 to 1 to 2 copies");
  EXPECT_EQ(run.notes.size(), 3U);
}

TEST_F(CopiesOfTeam, OfOtherAlgorithmsComeAndGoToo) {
  for (const char* algorithm : {"sync", "averaging", "gossip"}) {
    for (CutGrid grid : {kOneByStages, kOneByTensor, kTwoByStages}) {
      SCOPED_TRACE(algorithm);
      grid.algorithm = algorithm;
      begin(grid);
      const int workers = grid.workers();
      expect_whole(train(with, {}, 2, {{middle, {.come = 2}}}), {}, workers + 2, loss, "a copy comes");
      const CutRun replaced = train(with, {}, 1, {{middle, {.come = 1, .leave = {0}}}});
      expect_whole(replaced, {}, workers, loss, "a place is taken");
      ASSERT_EQ(replaced.notes.size(), 1U);
      EXPECT_EQ(replaced.notes[0].find("back to"), std::string::npos) << replaced.notes[0];
      if (grid.replicas == 1) {
        continue;
      }
      const CutRun run = train(with, {}, 2, {{middle / 2, {.leave = {3}}}, {middle, {.come = 2}}});
      expect_whole(run, {}, workers, loss, "a copy leaves, and another comes");
      EXPECT_EQ(run.count("left"), 2);
    }
  }
}

TEST_F(CopiesOfTeam, OfOtherAlgorithmsSurviveADeathWhileTheyComeAndGo) {
  for (const char* algorithm : {"sync", "averaging", "gossip"}) {
    CutGrid grid = kTwoByStages;
    grid.algorithm = algorithm;
    begin(grid);
    expect_to_survive({.come = 2}, 2, {0, 3, 4}, {4});
    expect_to_survive({.leave = {0}}, 0, {1, 2}, {1, 2});
  }
}

TEST_F(CopiesOfTeam, HaveAWorkersPlaceTakenFromMemoryAlsoWhereThereIsOnlyOne) {
  for (const CutGrid& grid : {kOneByStages, kOneByTensor, kTwoByStages}) {
    begin(grid);
    for (const int leaver : {0, 1}) {
      const CutRun run = train(with, {}, 1, {{middle, {.come = 1, .leave = {leaver}}}});
      expect_whole(run, {}, grid.workers(), loss, fmt::format("{}: rank {} leaves", grid.name, leaver));
      EXPECT_EQ(run.ends[static_cast<std::size_t>(leaver)].summary.status, "left");
      ASSERT_EQ(run.notes.size(), 1U);
      EXPECT_TRUE(run.notes[0].starts_with(fmt::format("rank {} leaves; rank {} joined: ", leaver, grid.workers())))
          << run.notes[0];
      EXPECT_EQ(run.notes[0].find("back to"), std::string::npos);
    }
  }
}

TEST_F(CopiesOfTeam, KeepWhoIsToLeaveWhenNobodyElseHasItsPart) {
  begin(kOneByStages);
  const CutRun run = train(with, {}, 0, {{middle, {.leave = {1}}}});
  expect_whole(run, {}, 2, loss, "nobody takes its place");
  EXPECT_EQ(run.count("finished"), 2);
}

TEST_F(CopiesOfTeam, SurviveADeathWhileTheyGrow) {
  begin(kOneByStages);
  expect_to_survive({.come = 2}, 2, {0, 1, 2, 3}, {1, 2, 3});
  begin(kTwoByStages);
  expect_to_survive({.come = 2}, 2, {0, 3, 4, 5}, {4});
}

TEST_F(CopiesOfTeam, SurviveADeathWhileOneLeaves) {
  begin(kTwoByStages);
  expect_to_survive({.leave = {3}}, 0, {0, 2, 3}, {1, 2});  // 1: of the copy that was left
  begin(kTwoByStages);
  expect_to_survive({.leave = {0}}, 0, {0, 2}, {1, 2});
  begin(kOneByStages);
  expect_to_survive({.come = 1, .leave = {1}}, 1, {0, 1, 2}, {1, 2});
}

}  // namespace
}  // namespace distbelief
