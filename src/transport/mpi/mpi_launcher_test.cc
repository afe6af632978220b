#include "transport/mpi/mpi_launcher.h"

#include <gtest/gtest.h>

#include <map>

namespace distbelief {
namespace {

using LauncherKind = MpiLauncher::Kind;

MpiLauncher detect(std::map<std::string, std::string, std::less<>> variables) {
  return detect_mpi_launcher([&](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(MpiLauncher, IsNoneWithoutVariables) {
  const MpiLauncher launcher = detect({});
  EXPECT_EQ(launcher.kind, LauncherKind::none);
  EXPECT_EQ(launcher.size, 1);
  EXPECT_TRUE(launcher.survivors_live);
}

TEST(MpiLauncher, KnowsOpenMpiAndNamesTheFlagThatIsMissing) {
  const MpiLauncher launcher = detect({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  EXPECT_EQ(launcher.kind, LauncherKind::open_mpi);
  EXPECT_EQ(launcher.rank, 3);
  EXPECT_EQ(launcher.size, 4);
  EXPECT_FALSE(launcher.survivors_live);
  EXPECT_NE(launcher.remedy.find("--enable-recovery"), std::string::npos);
}

TEST(MpiLauncher, SeesThatOpenMpiRecovers) {
  const MpiLauncher launcher =
      detect({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_MCA_orte_enable_recovery", "1"}});
  EXPECT_TRUE(launcher.survivors_live);
  EXPECT_EQ(launcher.remedy, "");
}

TEST(MpiLauncher, BelievesMpirunInsideASlurmAllocation) {
  EXPECT_EQ(detect({{"OMPI_COMM_WORLD_RANK", "1"},
                    {"OMPI_COMM_WORLD_SIZE", "2"},
                    {"SLURM_PROCID", "0"},
                    {"SLURM_NTASKS", "8"},
                    {"SLURM_STEP_ID", "0"}})
                .kind,
            LauncherKind::open_mpi);
}

TEST(MpiLauncher, NeverPromisesSurvivalUnderMpich) {
  const MpiLauncher launcher = detect({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}});
  EXPECT_EQ(launcher.kind, LauncherKind::mpich);
  EXPECT_EQ(launcher.rank, 1);
  EXPECT_FALSE(launcher.survivors_live);
  EXPECT_NE(launcher.remedy.find("-disable-auto-cleanup"), std::string::npos);
}

TEST(MpiLauncher, TellsSrunThatSpeaksPmiFromHydra) {
  std::map<std::string, std::string, std::less<>> variables = {{"PMI_RANK", "1"},     {"PMI_SIZE", "2"},
                                                               {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"},
                                                               {"SLURM_NTASKS", "8"}, {"SLURM_STEP_ID", "3"}};
  const MpiLauncher launcher = detect(variables);
  EXPECT_EQ(launcher.kind, LauncherKind::slurm);
  EXPECT_EQ(launcher.size, 2);
  EXPECT_NE(launcher.remedy.find("--kill-on-bad-exit=0"), std::string::npos);
  EXPECT_EQ(launcher.remedy.find("--transport socket"), std::string::npos);
  variables["PMIX_RANK"] = "1";
  EXPECT_NE(detect(variables).remedy.find("--transport socket"), std::string::npos);
  variables["MPI_LOCALNRANKS"] = "2";
  EXPECT_EQ(detect(variables).kind, LauncherKind::mpich);
}

TEST(MpiLauncher, SeesWhetherSomeRanksAreOnOtherMachines) {
  EXPECT_FALSE(detect({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}}).several_hosts);
  for (const auto& [local, several] : {std::pair{"4", false}, {"2", true}}) {
    EXPECT_EQ(
        detect({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", local}})
            .several_hosts,
        several);
    EXPECT_EQ(detect({{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", local}}).several_hosts, several);
  }
  EXPECT_TRUE(
      detect(
          {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_NODES", "2"}})
          .several_hosts);
}

TEST(MpiLauncher, SeesWhetherSrunSpeaksPmix) {
  std::map<std::string, std::string, std::less<>> variables = {
      {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_ID", "0"}};
  EXPECT_FALSE(detect(variables).speaks_pmix);
  variables["PMIX_RANK"] = "1";
  EXPECT_TRUE(detect(variables).speaks_pmix);
}

TEST(MpiLauncher, TakesABatchScriptForNoLauncher) {
  EXPECT_EQ(detect({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}).kind, LauncherKind::none);
  EXPECT_EQ(detect({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_ID", "4294967291"}}).kind,
            LauncherKind::none);
}

TEST(MpiLauncher, IgnoresVariablesThatAreNoRank) {
  for (const auto& [rank, size] : {std::pair{"", "4"}, {"4", "4"}, {"-1", "4"}, {"1x", "4"}, {"0", "99999999999"}}) {
    EXPECT_EQ(detect({{"OMPI_COMM_WORLD_RANK", rank}, {"OMPI_COMM_WORLD_SIZE", size}}).kind, LauncherKind::none)
        << rank;
  }
}

}  // namespace
}  // namespace distbelief
