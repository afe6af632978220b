// Teams whose network is cut, and whose members die at any message: ranks are threads.
#include "train/test_cut_team.h"

namespace distbelief {
namespace {

constexpr CutGrid kTwoByTwoByTwo = {"2 copies of 2 stages over 2 workers", 2, 2, 2, "hidden2", "hidden1=outputs"};
constexpr CutGrid kThreeByStages = {"3 copies of 2 stages", 3, 2, 1, "hidden2", ""};

TEST_F(CutTeam, OfStagesSurvivesADeathAtAnyMessage) { expect_to_survive_deaths(kTwoByStages, 24, 8, 2); }

TEST_F(CutTeam, OfLayersSurvivesADeathAtAnyMessage) { expect_to_survive_deaths(kTwoByTensor, 24, 8, 2); }

TEST_F(CutTeam, OfStagesAndLayersSurvivesADeath) { expect_to_survive_deaths(kTwoByTwoByTwo, 4, 4, 4); }

TEST_F(CutTeam, OfOtherAlgorithmsSurvivesADeathAtAnyMessage) {
  for (const char* algorithm : {"sync", "averaging", "gossip"}) {
    for (CutGrid grid : {kTwoByStages, kTwoByTensor, kThreeByStages}) {
      grid.algorithm = algorithm;
      expect_to_survive_deaths(grid, 12, 6, grid.workers() - 2);
    }
  }
}

TEST_F(CutTeam, GivesUpTheCopyOfTheDeadAndSaysSo) {
  const RunConfig with = config(kThreeByStages);
  const CutRun undisturbed = train(with, {});
  const CutRun run = train(with, {{3, undisturbed.ends[3].posts / 2}});
  expect_whole(run, {{3, 0}}, 4, *undisturbed.ends[0].summary.last.test_loss, "one copy is given up");
  EXPECT_EQ(run.ends[2].summary.status, "given up");
  ASSERT_FALSE(run.notes.empty());
  EXPECT_TRUE(
      run.notes[0].starts_with("rank 3 died: copy 2 of 3 is given up, worker 2 ends; 2 copies go on after step "))
      << run.notes[0];
}

TEST_F(CutTeam, MakesCopiesOfWhatIsLeftOfOthers) {
  const RunConfig with = config(kThreeByStages);
  const CutRun undisturbed = train(with, {});
  const double loss = *undisturbed.ends[0].summary.last.test_loss;
  for (const int apart : {0, 1, 7, 40}) {
    // The leader and the other part of another copy: rank 1 and rank 2 are together then, unless one has left before.
    const std::map<int, int> deaths = {{0, undisturbed.ends[0].posts / 2}, {3, undisturbed.ends[3].posts / 2 + apart}};
    const CutRun run = train(with, deaths);
    ASSERT_NE(run.leader(), nullptr);
    const int left = run.leader()->summary.workers_at_end;
    EXPECT_TRUE(left == 4 || left == 2) << left;
    expect_whole(run, deaths, left, loss, fmt::format("{} messages apart", apart));
  }
}

TEST_F(CutTeam, HasAStandbyTakeTheDeadOnesPlaceAtAnyMessage) {
  expect_to_survive_deaths(kTwoByStages, 16, 8, 4, 1);
  expect_to_survive_deaths(kTwoByTensor, 8, 6, 4, 1);
  expect_to_survive_deaths(kTwoByTwoByTwo, 2, 2, 8, 1);
}

TEST_F(CutTeam, GivesAStandbyThePartOfTheDeadFromAnotherCopyAndSaysSo) {
  const RunConfig with = config(kTwoByStages);
  const CutRun undisturbed = train(with, {});
  const CutRun run = train(with, {{1, undisturbed.ends[1].posts / 2}}, 2);
  expect_whole(run, {{1, 0}}, 4, *undisturbed.ends[0].summary.last.test_loss, "one of two standbys");
  EXPECT_EQ(run.ends[4].summary.status, "finished");
  EXPECT_EQ(run.ends[5].summary.status, kUnused);
  ASSERT_EQ(run.notes.size(), 1U);
  EXPECT_TRUE(run.notes[0].starts_with("rank 1 died; rank 4 joined: 2 copies go on after step ")) << run.notes[0];
  const std::vector<TeamEvent>& events = run.leader()->summary.events;
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1].what, TeamEvent::What::joined);
  EXPECT_EQ(events[1].who, "rank 4");
}

TEST_F(CutTeam, HasAsManyPlacesTakenAsThereAreStandbys) {
  const RunConfig with = config(kTwoByStages);
  const CutRun undisturbed = train(with, {});
  const double loss = *undisturbed.ends[0].summary.last.test_loss;
  for (const int apart : {0, 1, 7, 40}) {
    // A whole copy, both halves of two copies, the leader, and a part that nobody has any more.
    for (const auto& [first, second] : std::map<int, int>{{2, 3}, {0, 3}, {1, 3}}) {
      const std::map<int, int> deaths = {{first, undisturbed.ends[0].posts / 2},
                                         {second, undisturbed.ends[0].posts / 2 + apart}};
      expect_whole(train(with, deaths, 2), deaths, 4, loss, fmt::format("{} and {}, {} apart", first, second, apart));
    }
  }
}

TEST_F(CutTeam, SurvivesTheDeathOfAStandbyThatTakesAPlace) {
  const RunConfig with = config(kTwoByStages);
  const CutRun undisturbed = train(with, {});
  const double loss = *undisturbed.ends[0].summary.last.test_loss;
  const CutRun usual = train(with, {{2, undisturbed.ends[2].posts / 2}}, 1);
  const int posts = usual.ends[4].posts;
  for (const int moment : moments_of_death(posts, 2, 24)) {
    for (const int standbys : {1, 2}) {
      const std::map<int, int> deaths = {{2, undisturbed.ends[2].posts / 2}, {4, moment}};
      const CutRun run = train(with, deaths, standbys);
      if (run.ends[4].summary.status == "finished") {
        continue;  // it had fewer to post
      }
      const int left = standbys == 1 ? 2 : 4;
      if (moment >= posts - 8 && run.leader() != nullptr && run.leader()->summary.workers_at_end != left) {
        continue;  // all was written, and some had left
      }
      expect_whole(run, deaths, left, loss, fmt::format("at message {} of {}, {} standbys", moment, posts, standbys));
    }
  }
}

TEST_F(CutTeam, OfOneCopyGoesBackWithTheSameCutWhenThereIsAStandby) {
  const CutGrid stages = {"3 stages", 1, 3, 1, "hidden2,output", ""};
  expect_to_survive_deaths(stages, 3, 5, 3, 1);
  const CutGrid tensor = {"2 workers", 1, 1, 2, "", "hidden1=outputs,hidden2=inputs"};
  expect_to_survive_deaths(tensor, 2, 4, 2, 1);
}

TEST_F(CutTeam, OfOtherAlgorithmsHasAStandbyTakeTheDeadOnesPlace) {
  for (const char* algorithm : {"sync", "averaging", "gossip"}) {
    for (CutGrid grid : {kTwoByStages, kThreeByStages}) {
      grid.algorithm = algorithm;
      expect_to_survive_deaths(grid, 3, 4, grid.workers(), 1);
    }
  }
}

TEST_F(CutTeam, OfOneCopyGoesBackToTheCheckpointWithFewerParts) {
  const CutGrid stages = {"3 stages", 1, 3, 1, "hidden2,output", ""};
  expect_to_survive_deaths(stages, 4, 6, 2);
  const CutGrid tensor = {"2 workers", 1, 1, 2, "", "hidden1=outputs,hidden2=inputs"};
  expect_to_survive_deaths(tensor, 3, 5, 1);
}

TEST_F(CutTeam, GoesBackWhenNobodyHasAPartAnyMore) {
  const RunConfig with = config(kTwoByStages);
  const CutRun undisturbed = train(with, {});
  const double loss = *undisturbed.ends[0].summary.last.test_loss;
  for (const int apart : {0, 1, 5, 30}) {
    const std::map<int, int> deaths = {{1, undisturbed.ends[1].posts / 2}, {3, undisturbed.ends[3].posts / 2 + apart}};
    const CutRun run = train(with, deaths);
    ASSERT_NE(run.leader(), nullptr);
    expect_whole(run, deaths, run.leader()->summary.workers_at_end, loss, fmt::format("{} messages apart", apart));
  }
}

}  // namespace
}  // namespace distbelief
