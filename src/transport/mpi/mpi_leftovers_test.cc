#include "transport/mpi/mpi_leftovers.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>

namespace distbelief {
namespace {

namespace fs = std::filesystem;

/// A folder for sessions and one for segments, with names as Open MPI gives them to this user on this host.
class MpiLeftovers : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "mpi_leftovers.XXXXXX").native();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
    fs::create_directory(shared_memory());
    char host[256] = {};
    ASSERT_EQ(::gethostname(host, sizeof host - 1), 0);
    host_and_user_ = std::string(host) + "." + std::to_string(::getuid());
  }
  void TearDown() override { fs::remove_all(root_); }

  fs::path shared_memory() const { return root_ / "shm"; }
  fs::path make_session(pid_t pid, const std::string& contact = "") {
    const fs::path session = root_ / ("ompi." + host_and_user_) / ("pid." + std::to_string(pid));
    fs::create_directories(session / "1" / "0");
    std::ofstream(session / "contact.txt") << contact << "\n";
    return session;
  }
  fs::path make_segment(const std::string& job, bool old = false) {
    const fs::path segment = shared_memory() / ("vader_segment." + host_and_user_ + "." + job + ".0");
    std::ofstream(segment) << std::string(4096, 'x');
    if (old) {
      fs::last_write_time(segment, fs::file_time_type::clock::now() - std::chrono::hours(1));
    }
    return segment;
  }
  std::vector<fs::path> clean() { return remove_mpi_leftovers(root_, shared_memory()); }

  static pid_t dead_pid() {
    pid_t child = 0;
    char program[] = "/bin/true";
    char* arguments[] = {program, nullptr};
    EXPECT_EQ(::posix_spawn(&child, program, nullptr, nullptr, arguments, environ), 0);
    EXPECT_EQ(::waitpid(child, nullptr, 0), child);
    return child;
  }

  fs::path root_;
  std::string host_and_user_;
};

TEST_F(MpiLeftovers, GoWithTheSessionOfADeadLauncher) {
  const fs::path session = make_session(dead_pid(), "326959104.0;tcp://127.0.0.1:1");  // 0x137d0000
  const fs::path segment = make_segment("137d0001");
  EXPECT_EQ(clean(), (std::vector{session, segment}));
  EXPECT_FALSE(fs::exists(session.parent_path()));
  EXPECT_FALSE(fs::exists(segment));
}

TEST_F(MpiLeftovers, StayWhileTheLauncherLives) {
  const fs::path session = make_session(::getpid(), "326959104.0;tcp://127.0.0.1:1");
  const fs::path segment = make_segment("137d0001");
  EXPECT_TRUE(clean().empty());
  EXPECT_TRUE(fs::exists(session / "contact.txt"));
  EXPECT_TRUE(fs::exists(segment));
}

TEST_F(MpiLeftovers, WithoutASessionGoWhenNothingTouchedThemForLong) {
  const fs::path fresh = make_segment("aaaa0001");
  const fs::path old = make_segment("bbbb0001", true);
  EXPECT_EQ(clean(), std::vector{old});
  EXPECT_TRUE(fs::exists(fresh));
}

TEST_F(MpiLeftovers, StayWhileAProcessHasThemMapped) {
  const fs::path segment = make_segment("bbbb0001", true);
  const int file = ::open(segment.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(file, 0);
  void* const memory = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file, 0);
  ::close(file);
  ASSERT_NE(memory, MAP_FAILED);
  EXPECT_TRUE(clean().empty());
  ::munmap(memory, 4096);
  EXPECT_EQ(clean(), std::vector{segment});
}

TEST_F(MpiLeftovers, OfOthersAndOddNamesStay) {
  const std::string user = std::to_string(::getuid());
  const std::string host = host_and_user_.substr(0, host_and_user_.rfind('.'));
  const std::string dead = "pid." + std::to_string(dead_pid());
  for (const std::string& top :
       {"ompi.elsewhere." + user, "ompi." + host + ".54321", "ompi." + host, std::string("other")}) {
    fs::create_directories(root_ / top / dead);
  }
  fs::create_directories(root_ / ("ompi." + host_and_user_) / "pid.x");
  fs::create_directories(root_ / ("ompi." + host_and_user_) / "pid.0");
  for (const std::string& name :
       {"vader_segment.elsewhere." + user + ".1.0", "vader_segment." + host + ".54321.1.0",
        "vader_segment." + host_and_user_ + ".xyz.0", std::string("vader_segment."), std::string("other")}) {
    std::ofstream(shared_memory() / name) << "x";
    fs::last_write_time(shared_memory() / name, fs::file_time_type::clock::now() - std::chrono::hours(1));
  }
  EXPECT_TRUE(clean().empty());
}

TEST_F(MpiLeftovers, AreNotLookedForBehindLinks) {
  fs::create_directories(root_ / "precious" / "deep");
  const fs::path top = root_ / ("ompi." + host_and_user_);
  fs::create_directory(top);
  fs::create_directory_symlink(root_ / "precious", top / ("pid." + std::to_string(dead_pid())));
  EXPECT_TRUE(clean().empty());
  EXPECT_TRUE(fs::exists(root_ / "precious" / "deep"));
}

TEST_F(MpiLeftovers, MayBeNone) { EXPECT_TRUE(remove_mpi_leftovers(root_ / "missing", root_ / "missing too").empty()); }

}  // namespace
}  // namespace distbelief
