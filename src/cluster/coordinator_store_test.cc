// Coordinators and members with a store that fails, and with one on another machine.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <map>
#include <mutex>

#include "base/error.h"
#include "cluster/job_file.h"
#include "cluster/test_job.h"
#include "transport/socket/file_descriptor.h"

namespace distbelief {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using Ms = std::chrono::milliseconds;

/// What several coordinators of one job share, as if it was on another machine.
struct SharedMemory {
  std::mutex mutex;
  std::uint64_t term = 0;
  std::map<std::string, std::string, std::less<>> values;
  std::string leader;
  bool fails = false;

  std::optional<JobFile> find() {
    const std::scoped_lock lock(mutex);
    return leader.empty() ? std::nullopt : std::optional(parse_job_file(leader, "memory"));
  }
  void set_failing(bool now) {
    const std::scoped_lock lock(mutex);
    fails = now;
  }
};

class MemoryStore : public Store {
 public:
  explicit MemoryStore(SharedMemory& memory) : memory_(memory) {}
  std::uint64_t begin_term() override {
    const std::scoped_lock lock(memory_.mutex);
    return term_ = ++memory_.term;
  }
  std::optional<std::string> read(std::string_view name) override {
    const std::scoped_lock lock(memory_.mutex);
    const auto found = memory_.values.find(name);
    return found == memory_.values.end() ? std::nullopt : std::optional(found->second);
  }
  bool write(std::string_view name, std::string_view contents, Outlives /*outlives*/) override {
    const std::scoped_lock lock(memory_.mutex);
    if (memory_.fails) {
      throw FileError("memory: is full");
    }
    if (term_ != memory_.term) {
      return false;
    }
    memory_.values[std::string(name)] = contents;
    return true;
  }
  void remove(std::string_view name) override {
    const std::scoped_lock lock(memory_.mutex);
    memory_.values.erase(std::string(name));
  }
  void publish(const std::string& job_file) override {
    const std::scoped_lock lock(memory_.mutex);
    memory_.leader = job_file;
  }
  bool may_act() const override { return may_act_; }
  std::string why_not() const override { return "somebody else does"; }

  std::atomic<bool> may_act_ = true;

 private:
  SharedMemory& memory_;
  std::uint64_t term_ = 0;
};

class CoordinatorStore : public testing::Test {
 protected:
  CoordinatorStore() {
    options.rules = {.version = "1.0", .configuration = "abc", .workers = 2, .heartbeat = Ms(20)};
    options.log = [this](const std::string& line) {
      const std::scoped_lock lock(mutex_);
      lines_.push_back(line);
    };
  }
  ~CoordinatorStore() override {
    for (auto& member : members) {
      member.reset();
    }
  }

  /// A coordinator, the first or one that takes the place of the one before elsewhere.
  std::unique_ptr<Coordinator> begin() {
    store = std::make_shared<MemoryStore>(memory);
    options.store = store;
    auto made = std::make_unique<Coordinator>(options);
    options.comes_back = options.elsewhere = true;
    return made;
  }
  std::unique_ptr<Member> join(const Coordinator& coordinator, Role role = Role::worker) {
    JoinRequest request;
    request.version = "1.0";
    request.configuration = "abc";
    request.token = coordinator.token();
    request.host = "alpha";
    request.pid = 4711;
    request.role = role;
    request.silence_limit = Ms(500);
    request.coordinator_limit = Ms(100);  // so that only a search finds the next
    request.return_limit = Ms(60'000);
    request.find_coordinator = [this](Clock::time_point /*deadline*/) { return memory.find(); };
    request.on_event = [this](const MemberEvent& event) { events.add(event); };
    auto joined = Member::join(coordinator.address(), request, soon());
    EXPECT_NE(joined.member, nullptr) << joined.reason;
    return std::move(joined.member);
  }
  std::string log() {
    const std::scoped_lock lock(mutex_);
    std::string all;
    for (const std::string& line : lines_) {
      all += line + "\n";
    }
    return all;
  }

  SharedMemory memory;
  std::shared_ptr<MemoryStore> store;
  CoordinatorOptions options;
  EventRecorder events;
  std::vector<std::unique_ptr<Member>> members;

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;  // guarded by mutex_
};

TEST_F(CoordinatorStore, MembersFindTheNextOneAtItsAddress) {
  auto first = begin();
  members.push_back(join(*first));
  members.push_back(join(*first));
  ASSERT_TRUE(members[1]->wait_for_view(1, soon()));
  const Address address = first->address();
  first.reset();
  const auto second = begin();
  EXPECT_NE(second->address(), address);
  for (const auto& member : members) {
    member->notice("to the second");
    EXPECT_TRUE(member->flush(soon()));
    EXPECT_EQ(member->term(), 2U);
  }
  EXPECT_EQ(members[0]->view().number, 1U) << "somebody was lost";
  EXPECT_TRUE(members[0]->leave(true, "done", soon()));
  EXPECT_TRUE(members[1]->leave(true, "done", soon()));
  EXPECT_TRUE(second->wait(soon())->succeeded);
  EXPECT_THAT(events.all<CoordinatorLost>(), IsEmpty());
}

TEST_F(CoordinatorStore, OneThatMayNotActIsSilentAndItsMembersGoToTheNext) {
  const auto first = begin();
  const auto first_store = store;
  members.push_back(join(*first));
  members.push_back(join(*first));
  ASSERT_TRUE(members[1]->wait_for_view(1, soon()));
  first_store->may_act_ = false;
  const auto result = first->wait(soon());
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->deposed);
  EXPECT_EQ(result->reason, "somebody else does");
  const auto second = begin();  // while the first still listens, and does not answer
  for (const auto& member : members) {
    member->notice("to the second");
    EXPECT_TRUE(member->flush(soon()));
    EXPECT_EQ(member->term(), 2U);
  }
  EXPECT_TRUE(members[0]->leave(true, "done", soon()));
  EXPECT_TRUE(members[1]->leave(true, "done", soon()));
  EXPECT_TRUE(second->wait(soon())->succeeded);
}

TEST_F(CoordinatorStore, OneThatIsToldSoByAWriteDoesNothingOfWhatItDecided) {
  const auto first = begin();
  members.push_back(join(*first));
  MemoryStore next(memory);
  next.begin_term();
  auto request = JoinRequest();
  request.version = "1.0";
  request.configuration = "abc";
  request.token = first->token();
  const auto refused = Member::join(first->address(), request, Clock::now() + Ms(300));
  EXPECT_EQ(refused.member, nullptr) << "it was welcomed by one of the past";
  EXPECT_TRUE(first->wait(soon())->deposed);
}

TEST_F(CoordinatorStore, OneThatCannotWriteGoesOnAndSaysSo) {
  const auto coordinator = begin();
  members.push_back(join(*coordinator, Role::observer));
  members.push_back(join(*coordinator));
  memory.set_failing(true);
  members.push_back(join(*coordinator));
  ASSERT_TRUE(members[1]->wait_for_view(1, soon()));
  EXPECT_THAT(events.wait_for<Notice>().text, HasSubstr("memory: is full; if the coordinator dies now, the job ends"));
  memory.set_failing(false);
  events.wait_for<Notice>(
      [](const Notice& notice) { return notice.text.find("written down again") != std::string::npos; });
  EXPECT_THAT(log(), HasSubstr("is written down again"));
  EXPECT_TRUE(members[1]->leave(true, "done", soon()));
  EXPECT_TRUE(members[2]->leave(true, "done", soon()));
  EXPECT_TRUE(coordinator->wait(soon())->succeeded);
}

TEST_F(CoordinatorStore, OneElsewhereGoesOnWithoutTheLauncher) {
  options.rules.has_launcher = true;
  auto first = begin();
  auto launcher = join(*first, Role::launcher);
  members.push_back(join(*first));
  members.push_back(join(*first));
  ASSERT_TRUE(members[1]->wait_for_view(1, soon()));
  first.reset();
  launcher.reset();  // with its machine
  options.rules.has_launcher = false;
  options.rules.outlives_launcher = true;
  options.rules.return_grace = Ms(3'000);  // members look for it twice a second
  const auto second = begin();
  const auto lost = events.wait_for<MemberLost>();
  EXPECT_EQ(lost.member.role, Role::launcher);
  EXPECT_TRUE(members[0]->leave(true, "done", soon()));
  EXPECT_TRUE(members[1]->leave(true, "done", soon()));
  const auto result = second->wait(soon());
  EXPECT_TRUE(result->succeeded) << result->reason;
}

TEST(FileStore, DoesNotWaitLongForADiskThatDoesNotAnswer) {
  const ClusterTestFolder folder;
  FileStore store(folder.path(), Ms(20));
  const auto write = [&](std::string_view contents) {
    return store.write("state", contents, Store::Outlives::the_process);
  };
  const auto reason = [&](std::string_view contents) {
    try {
      return write(contents) ? std::string("written") : "";
    } catch (const FileError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(reason("first"), "written");
  const std::string beside = folder.path() / ".state.partial";
  ASSERT_EQ(::mkfifo(beside.c_str(), 0600), 0);  // to open it for writing waits for a reader
  EXPECT_THAT(reason("second"), HasSubstr("state: cannot write: the disk has not answered for 20 ms"));
  EXPECT_THAT(reason("third"), HasSubstr("has not answered")) << "while the second is still under way";
  EXPECT_EQ(store.read("state"), "first");
  const FileDescriptor reader(::open(beside.c_str(), O_RDONLY | O_CLOEXEC));
  for (const auto deadline = soon(); reason("second") != "written";) {
    ASSERT_LT(Clock::now(), deadline);
  }
  EXPECT_TRUE(std::filesystem::is_fifo(folder.path() / "state")) << "what was under way was written again";
  EXPECT_EQ(reason("fourth"), "written");
  EXPECT_EQ(store.read("state"), "fourth");
  store.remove("state");
  EXPECT_FALSE(store.read("state"));
}

TEST_F(CoordinatorStore, AJobFileOfTheNextOneStays) {
  const ClusterTestFolder folder;
  options.run_folder = folder.path();
  auto first = begin();
  JobFile next = read_job_file(folder.path());
  next.term = 2;
  write_job_file(folder.path(), next);
  first.reset();
  EXPECT_EQ(read_job_file(folder.path()).term, 2U);
}

}  // namespace
}  // namespace distbelief
