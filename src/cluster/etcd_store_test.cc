#include "cluster/etcd_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "base/error.h"
#include "cluster/etcd_guard.h"
#include "cluster/test_etcd.h"

namespace distbelief {
namespace {

using testing::HasSubstr;
using Claim = EtcdStore::Claim;
using Sight = EtcdGuard::Sight::Kind;
using std::chrono::milliseconds;

constexpr Claim kFirst = {.kind = Claim::Kind::first};
constexpr EtcdTiming kQuick = {.lease = std::chrono::seconds(2),
                               .margin = milliseconds(200),
                               .keep_every = milliseconds(50),
                               .request_limit = milliseconds(500),
                               .between_tries = milliseconds(10)};

/// Where etcd always answers, however busy the machine is.
constexpr EtcdTiming kPatient = {.lease = std::chrono::seconds(5),
                                 .margin = kQuick.margin,
                                 .keep_every = kQuick.keep_every,
                                 .request_limit = std::chrono::seconds(20),
                                 .between_tries = kQuick.between_tries};

bool put(Store& store, std::string_view name, std::string_view contents) {
  return store.write(name, contents, Store::Outlives::the_process);
}

/// One etcd for all tests, each of which has a name of its own.
class EtcdStoreTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { etcd = std::make_unique<TestEtcd>(); }
  static void TearDownTestSuite() { etcd.reset(); }

  StoreUrl url() const { return etcd->url(testing::UnitTest::GetInstance()->current_test_info()->name()); }
  std::unique_ptr<EtcdStore> open(const Claim& claim = kFirst) const {
    EtcdStore::Opened opened = EtcdStore::open(url(), std::nullopt, claim, soon(), kPatient);
    EXPECT_NE(opened.store, nullptr) << opened.reason;
    return std::move(opened.store);
  }
  static Claim dead(std::uint64_t term) { return {.kind = Claim::Kind::dead, .term = term}; }
  /// The first of this kind.
  static EtcdGuard::Sight wait_for(EtcdGuard& guard, Sight kind) {
    const Clock::time_point deadline = soon();
    for (;;) {
      const EtcdGuard::Sight sight = guard.look();
      if (sight.kind == kind || Clock::now() > deadline) {
        EXPECT_EQ(sight.kind, kind) << sight.reason;
        return sight;
      }
      std::this_thread::sleep_for(milliseconds(10));
    }
  }
  static void wait_until(const std::function<bool()>& condition) {
    const Clock::time_point deadline = soon();
    while (!condition()) {
      ASSERT_LT(Clock::now(), deadline);
      std::this_thread::sleep_for(milliseconds(5));
    }
  }

  static std::unique_ptr<TestEtcd> etcd;
};

std::unique_ptr<TestEtcd> EtcdStoreTest::etcd;

TEST_F(EtcdStoreTest, ReadsBackWhatWasWritten) {
  const auto store = open();
  EXPECT_EQ(store->begin_term(), 1U);
  EXPECT_EQ(store->read("coordinator.state"), std::nullopt);
  std::string bytes;
  for (int i = 0; i < 100'000; ++i) {
    bytes += static_cast<char>(i * 7 % 256);
  }
  for (const std::string& contents :
       {std::string(), std::string("a"), std::string("ab"), std::string(1, '\0'), bytes}) {
    EXPECT_TRUE(put(*store, "coordinator.state", contents));
    EXPECT_EQ(store->read("coordinator.state"), contents);
  }
  store->remove("coordinator.state");
  EXPECT_EQ(store->read("coordinator.state"), std::nullopt);
}

TEST_F(EtcdStoreTest, OneOfManyTakesATerm) {
  open().reset();
  for (std::uint64_t term = 1; term <= 3; ++term) {
    std::atomic<int> took = 0;
    std::atomic<int> late = 0;
    {
      std::vector<std::jthread> claims;
      for (int i = 0; i < 8; ++i) {
        claims.emplace_back([&] {
          const EtcdStore::Opened opened = EtcdStore::open(url(), std::nullopt, dead(term), soon(), kPatient);
          took += opened.store != nullptr && opened.store->begin_term() == term + 1 ? 1 : 0;
          late += opened.another_leads ? 1 : 0;
        });
      }
    }
    EXPECT_EQ(took, 1);
    EXPECT_EQ(late, 7);
  }
}

TEST_F(EtcdStoreTest, AnOlderTermCannotWrite) {
  const auto old = open();
  EXPECT_TRUE(put(*old, "coordinator.state", "old"));
  const auto next = open(dead(1));
  EXPECT_EQ(next->begin_term(), 2U);
  EXPECT_EQ(next->read("coordinator.state"), "old");
  EXPECT_FALSE(put(*old, "coordinator.state", "late"));
  EXPECT_FALSE(old->may_act());
  EXPECT_THAT(old->why_not(), HasSubstr("a coordinator of term 2 took the place of this one, of term 1"));
  EXPECT_EQ(next->read("coordinator.state"), "old");
  EXPECT_TRUE(put(*next, "coordinator.state", "new"));
  old->remove("coordinator.state");
  EXPECT_EQ(next->read("coordinator.state"), "new");
  EXPECT_TRUE(next->may_act());
}

TEST_F(EtcdStoreTest, AnOlderTermFindsOutByItself) {
  const auto old = open();
  const auto next = open(dead(1));
  wait_until([&] { return !old->may_act(); });
}

TEST_F(EtcdStoreTest, SaysWhereTheCoordinatorIs) {
  EtcdClient client(url(), std::nullopt);
  EXPECT_EQ(find_leader(client, soon()), std::nullopt);
  const auto store = open();
  const JobFile job = {.address = Address::tcp("alpha", 4000),
                       .alternatives = {Address::tcp("10.0.0.7", 4000)},
                       .token = "secret",
                       .pid = 4711,
                       .term = 1,
                       .started = "now"};
  EXPECT_EQ(find_leader(client, soon()), std::nullopt) << "it does not listen yet";
  store->publish(job_file_text(job));
  wait_until([&] { return find_leader(client, soon()) == job; });
}

TEST_F(EtcdStoreTest, AJobThatBeginsForgetsTheOneBefore) {
  {
    const auto killed = open();
    EXPECT_TRUE(put(*killed, "coordinator.state", "of the one that was killed"));
  }
  const auto store = open();  // waits for its lease
  EXPECT_EQ(store->begin_term(), 2U);
  EXPECT_EQ(store->read("coordinator.state"), std::nullopt);
}

TEST_F(EtcdStoreTest, AJobOfTheSameNameThatRunsIsRefused) {
  const SocketListener listener(Address::tcp("127.0.0.1", 0));
  const auto store = open();
  store->publish(job_file_text({.address = listener.address(), .token = "x", .pid = 1, .term = 1}));
  EXPECT_THROW((void)EtcdStore::open(url(), std::nullopt, kFirst, soon(), kPatient), InputError);
  try {
    EtcdStore::check_free(url(), std::nullopt, soon());
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("a job of this name runs already, its coordinator is at " + listener.address().text()));
  }
}

TEST_F(EtcdStoreTest, AGuardTakesOverFromOneThatDied) {
  auto guard = std::make_unique<EtcdGuard>(url(), std::nullopt, kPatient);
  EXPECT_EQ(guard->look().kind, Sight::no_job);
  auto store = open();
  EXPECT_TRUE(put(*store, "coordinator.state", "state"));
  EXPECT_TRUE(put(*store, "run.yaml", "config"));
  const EtcdGuard::Sight watched = wait_for(*guard, Sight::watched);
  EXPECT_EQ(watched.term, 1U);
  EXPECT_EQ(watched.config, "config");
  EXPECT_TRUE(store->guarded());
  EXPECT_TRUE(store->may_act());
  store.reset();  // as if it was killed
  EXPECT_EQ(wait_for(*guard, Sight::vacant).term, 1U);
  guard.reset();
  const auto next = open({.kind = Claim::Kind::guarded, .term = 1});
  EXPECT_EQ(next->begin_term(), 2U);
  EXPECT_EQ(next->read("coordinator.state"), "state");
  EXPECT_FALSE(next->guarded());
}

TEST_F(EtcdStoreTest, AGuardWaitsForOneThatDoesNotKnowIt) {
  auto store = open();
  EXPECT_TRUE(put(*store, "coordinator.state", "state"));
  store.reset();
  EtcdGuard guard(url(), std::nullopt, kPatient);
  EXPECT_EQ(wait_for(guard, Sight::unaware).term, 1U);  // the lease lasts
  EXPECT_EQ(wait_for(guard, Sight::lost).term, 1U);
  const EtcdStore::Opened opened =
      EtcdStore::open(url(), std::nullopt, {.kind = Claim::Kind::guarded, .term = 1}, soon(), kPatient);
  EXPECT_TRUE(opened.another_leads);
  EXPECT_THAT(opened.reason, HasSubstr("knows of no guard"));
}

TEST_F(EtcdStoreTest, AGuardSeesThatTheJobHasEnded) {
  EtcdGuard guard(url(), std::nullopt, kPatient);
  auto store = open();
  EXPECT_TRUE(put(*store, "coordinator.state", "state"));
  wait_for(guard, Sight::watched);
  store->remove("coordinator.state");
  store.reset();
  EXPECT_EQ(guard.look().kind, Sight::ended);
}

TEST_F(EtcdStoreTest, IsNoLongerGuardedWhenTheGuardIsGone) {
  const auto store = open();
  {
    EtcdGuard guard(url(), std::nullopt, kPatient);
    wait_for(guard, Sight::watched);
  }
  wait_until([&] { return !store->guarded(); });
}

TEST_F(EtcdStoreTest, TriesAllServers) {
  StoreUrl several = url();
  std::uint16_t closed_port = 0;
  {
    const SocketListener listener(Address::tcp("127.0.0.1", 0));
    closed_port = listener.address().port;
  }
  several.servers.insert(several.servers.begin(), Address::tcp("127.0.0.1", closed_port));
  EtcdClient client(several, std::nullopt);
  EXPECT_TRUE(client.read({"x"}, soon()).reached);
  several.servers.pop_back();
  EtcdClient none(several, std::nullopt);
  const EtcdClient::Answer answer = none.read({"x"}, soon());
  EXPECT_FALSE(answer.reached);
  EXPECT_THAT(answer.reason, HasSubstr("Connection refused"));
  EXPECT_THROW(EtcdStore::check_free(several, std::nullopt, soon()), InputError);
}

TEST_F(EtcdStoreTest, SaysThatAServerIsNotEtcd) {
  const SocketListener silent(Address::tcp("127.0.0.1", 0));
  StoreUrl other = url();
  other.servers = {silent.address()};
  EtcdClient client(other, std::nullopt);
  const EtcdClient::Answer answer = client.read({"x"}, Clock::now() + milliseconds(50));
  EXPECT_THAT(answer.reason, HasSubstr("did not answer in time"));
}

/// With an etcd of its own, that stops.
TEST(EtcdOutage, WhoHasNoGuardGoesOnWithoutEtcd) {
  TestEtcd etcd;
  const EtcdStore::Opened opened = EtcdStore::open(etcd.url("job"), std::nullopt, kFirst, soon(), kPatient);
  ASSERT_NE(opened.store, nullptr) << opened.reason;
  EtcdStore& store = *opened.store;
  EXPECT_TRUE(put(store, "coordinator.state", "before"));
  etcd.kill();
  EXPECT_THROW((void)put(store, "coordinator.state", "meanwhile"), FileError);
  std::this_thread::sleep_for(kPatient.lease);  // longer than its lease lasts
  EXPECT_TRUE(store.may_act());
  EXPECT_THROW((void)put(store, "coordinator.state", "meanwhile"), FileError);
  etcd.start_again();
  const Clock::time_point deadline = soon();
  for (bool written = false; !written;) {
    ASSERT_LT(Clock::now(), deadline);
    try {
      written = put(store, "coordinator.state", "after");
      ASSERT_TRUE(written) << store.why_not();
    } catch (const FileError&) {
      std::this_thread::sleep_for(milliseconds(10));
    }
  }
  EXPECT_EQ(store.read("coordinator.state"), "after");
  EXPECT_TRUE(store.may_act());
}

TEST(EtcdOutage, WhoHasAGuardStopsBeforeItsLeaseEnds) {
  TestEtcd etcd;
  const EtcdStore::Opened opened = EtcdStore::open(etcd.url("job"), std::nullopt, kFirst, soon(), kQuick);
  ASSERT_NE(opened.store, nullptr) << opened.reason;
  EtcdStore& store = *opened.store;
  EtcdGuard guard(etcd.url("job"), std::nullopt, kQuick);
  const Clock::time_point deadline = soon();
  while (guard.look().kind != Sight::watched) {
    ASSERT_LT(Clock::now(), deadline);
  }
  etcd.signal(SIGSTOP);  // it accepts connections, and never answers
  const Clock::time_point stopped = Clock::now();
  for (Clock::time_point asked = stopped; store.may_act(); asked = Clock::now()) {
    ASSERT_LT(asked, stopped + kQuick.lease);
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_THAT(store.why_not(), HasSubstr("a guard may take its place"));
  EXPECT_FALSE(put(store, "coordinator.state", "too late"));
  etcd.signal(SIGCONT);
  // By itself, as the next: nobody was faster.
  const EtcdStore::Opened again =
      EtcdStore::open(etcd.url("job"), std::nullopt, {.kind = Claim::Kind::dead, .term = 1}, soon(), kQuick);
  ASSERT_NE(again.store, nullptr) << again.reason;
  EXPECT_EQ(again.store->begin_term(), 2U);
  EXPECT_FALSE(put(store, "coordinator.state", "too late"));
}

TEST(EtcdOutage, WhoHasAGuardDoesNothingThatIsNotWrittenDown) {
  TestEtcd etcd;
  const EtcdStore::Opened opened = EtcdStore::open(etcd.url("job"), std::nullopt, kFirst, soon(), kQuick);
  ASSERT_NE(opened.store, nullptr) << opened.reason;
  EtcdGuard guard(etcd.url("job"), std::nullopt, kQuick);
  const Clock::time_point deadline = soon();
  while (guard.look().kind != Sight::watched) {
    ASSERT_LT(Clock::now(), deadline);
  }
  etcd.kill();
  EXPECT_FALSE(put(*opened.store, "coordinator.state", "view 7"));
  EXPECT_FALSE(opened.store->may_act());
}

/// An authority and a certificate for this machine.
TlsOptions make_certificate(const std::filesystem::path& folder) {
  const std::string at = folder / "job";
  const auto openssl = [](const std::string& arguments) {
    EXPECT_EQ(std::system(("openssl " + arguments + " 2>/dev/null").c_str()), 0) << arguments;
  };
  const std::string key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout";
  openssl(fmt::format("req -x509 {0} {1}-ca.key -out {1}-ca.pem -days 2 -subj /CN=authority", key, at));
  openssl(
      fmt::format("req -new {0} {1}.key -out {1}.csr -subj /CN=process -addext subjectAltName=IP:127.0.0.1", key, at));
  openssl(fmt::format(
      "x509 -req -in {0}.csr -CA {0}-ca.pem -CAkey {0}-ca.key -CAcreateserial -days 2 -copy_extensions copy "
      "-out {0}.pem",
      at));
  return {at + ".pem", at + ".key", at + "-ca.pem"};
}

TEST(EtcdTls, IsSpokenWithEtcds) {
  const ClusterTestFolder folder;
  const TlsOptions tls = make_certificate(folder.path());
  TestEtcd etcd(tls);
  const EtcdStore::Opened opened = EtcdStore::open(etcd.url("job"), tls, kFirst, soon(), kPatient);
  ASSERT_NE(opened.store, nullptr) << opened.reason;
  EXPECT_TRUE(put(*opened.store, "coordinator.state", "secret"));
  EXPECT_EQ(opened.store->read("coordinator.state"), "secret");
  EXPECT_THROW(EtcdClient(etcd.url("job"), std::nullopt), InputError);
}

}  // namespace
}  // namespace distbelief
