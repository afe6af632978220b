#include "train/job_hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "metrics/machine.h"
#include "transport/temporary_folder.h"

namespace distbelief {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string complaint(const std::function<void()>& act) {
  try {
    act();
  } catch (const InputError& error) {
    return error.what();
  }
  return "nothing";
}

RunConfig over(const std::string& hosts) {
  RunConfig config;
  config.algorithm = "allreduce";
  config.workers = 0;
  config.hosts = hosts;
  return config;
}

std::string names_of_ranks(const RunConfig& config, bool over_mpi) {
  std::string names;
  for (const JobHost& host : hosts_of_ranks(config, over_mpi)) {
    names += (names.empty() ? "" : " ") + host.name;
  }
  return names;
}

TEST(JobHosts, AreNamesWithNumbersOrOne) {
  EXPECT_THAT(
      parse_hosts("alpha:4,b-2.example.org,10.0.0.7:2,[fe80::7]:3"),
      ElementsAre(JobHost{"alpha", 4}, JobHost{"b-2.example.org", 1}, JobHost{"10.0.0.7", 2}, JobHost{"fe80::7", 3}));
}

TEST(JobHosts, RefusesWhatIsNoHostAndQuotesIt) {
  for (const std::string bad :
       {"", "a,,b", "a:0", "a:x", "a:4:4", "-oProxyCommand=x", "a b", "[fe80::7", "a,a", "a:9999"}) {
    EXPECT_NE(complaint([&] { (void)parse_hosts(bad); }), "nothing") << bad;
  }
  EXPECT_THAT(complaint([] { (void)parse_hosts("a,b:many"); }), HasSubstr("'b:many'"));
}

TEST(JobHosts, GiveTheNumberOfWorkers) {
  RunConfig config = over("a:4,b");
  settle_hosts(config, 1);
  EXPECT_EQ(config.workers, 5);
  EXPECT_EQ(config.hosts, "a:4,b:1");
  RunConfig none = over("");
  settle_hosts(none, 3);
  EXPECT_EQ(none.workers, 3);
}

TEST(JobHosts, AreReadFromAFileAndKeptAsAList) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "hosts";
  std::ofstream(file) << "# ours\nalpha slots=4\n\nbeta:2  # old\ngamma\n";
  RunConfig config = over(file);
  settle_hosts(config, 1);
  EXPECT_EQ(config.hosts, "alpha:4,beta:2,gamma:1");
  std::ofstream(file) << "alpha\nbeta cores=4\n";
  RunConfig bad = over(file);
  EXPECT_THAT(complaint([&] { settle_hosts(bad, 1); }), HasSubstr("hosts:2: expected HOST, HOST:N or HOST slots=N"));
}

TEST(JobHosts, RefuseWhatDoesNotGoTogether) {
  RunConfig config = over("a:2,b:2");
  config.workers = 3;
  EXPECT_THAT(complaint([&] { settle_hosts(config, 1); }), HasSubstr("--workers 3 does not fit --hosts a:2,b:2"));
  config = over("a:2");
  config.algorithm = "local";
  EXPECT_THAT(complaint([&] { settle_hosts(config, 1); }), HasSubstr("allreduce"));
  config = over("a:2");
  config.transport = "threads";
  EXPECT_THAT(complaint([&] { settle_hosts(config, 1); }), HasSubstr("socket or mpi"));
  config = over("no/such/file");
  EXPECT_THAT(complaint([&] { settle_hosts(config, 1); }), HasSubstr("no such file"));
}

TEST(JobHosts, HaveRanksInOrder) {
  EXPECT_EQ(names_of_ranks(over("a:2,b:1"), false), "a a b");
  EXPECT_EQ(names_of_ranks(over(""), false), "");
}

TEST(JobHosts, HaveServersOnAsManyOfThemAsThereAre) {
  RunConfig config = over("a:2,b:2,c:1");
  config.algorithm = "downpour";
  config.servers = 2;
  config.workers = 3;
  EXPECT_EQ(names_of_ranks(config, false), "a b c a b");
  EXPECT_EQ(names_of_ranks(config, true), "a a b b c");
  config.servers = 4;
  config.workers = 1;
  EXPECT_EQ(names_of_ranks(config, false), "b a b c a");
}

TEST(JobHosts, RunCommandsOverRshUnlessTheyAreThisMachine) {
  RunConfig config;
  config.rsh = "ssh -p 2222";
  const std::vector<std::string> command = {"/opt/my programs/it's", "worker", "A=1"};
  EXPECT_THAT(command_on({"elsewhere.invalid"}, config, command),
              ElementsAre("ssh", "-p", "2222", "elsewhere.invalid", "'/opt/my programs/it'\\''s'", "worker", "A=1"));
  EXPECT_EQ(command_on({"localhost"}, config, command), command);
  EXPECT_EQ(command_on({this_machine().host}, config, command), command);
}

TEST(JobHosts, MpirunHandsOnWhatMpiReads) {
  const auto options = mpi_host_options("Open MPI", over("a:1"), {"UCX_TLS=tcp", "HOME=/root", "UCX_TLS=tcp"});
  EXPECT_THAT(std::vector(options.begin(), options.begin() + 2), ElementsAre("--host", "a:1"));
  EXPECT_THAT(std::vector(options.end() - 2, options.end()), ElementsAre("-x", "UCX_TLS"));
  EXPECT_TRUE(mpi_host_options("Open MPI", over(""), {}).empty());
}

TEST(CoordinatorPlace, IsLoopbackOnOneMachine) {
  const CoordinatorPlace place = coordinator_place(RunConfig(), false);
  EXPECT_EQ(place.listen, Address::tcp("127.0.0.1", 0));
  EXPECT_THAT(place.hosts, ElementsAre("127.0.0.1"));
}

TEST(CoordinatorPlace, IsEveryAddressForSeveralHosts) {
  EXPECT_EQ(coordinator_place(over("a,b"), false).listen.host, "0.0.0.0");
  const CoordinatorPlace place = coordinator_place(RunConfig(), true);
  EXPECT_EQ(place.listen.host, "0.0.0.0");
  EXPECT_FALSE(place.hosts.empty());
}

TEST(CoordinatorPlace, IsWhereItsOptionsSay) {
  RunConfig config = over("a,b");
  config.listen = "10.0.0.7:4000";
  EXPECT_EQ(coordinator_place(config, false).listen, Address::tcp("10.0.0.7", 4000));
  EXPECT_THAT(coordinator_place(config, false).hosts, ElementsAre("10.0.0.7"));
  config.listen = "[::]";
  config.advertise = "gate.example.org";
  EXPECT_EQ(coordinator_place(config, false).listen, Address::tcp("::", 0));
  EXPECT_THAT(coordinator_place(config, false).hosts, ElementsAre("gate.example.org"));
  config.listen = "10.0.0.7:port";
  EXPECT_THAT(complaint([&] { settle_hosts(config, 1); }), HasSubstr("--listen 10.0.0.7:port"));
}

}  // namespace
}  // namespace distbelief
