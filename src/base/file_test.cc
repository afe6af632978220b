#include "base/file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "base/full_disk.h"

namespace distbelief {
namespace {

class AtomicFileTest : public testing::Test {
 protected:
  AtomicFileTest() { std::filesystem::create_directories(folder_); }
  ~AtomicFileTest() override { std::filesystem::remove_all(folder_); }
  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("distbelief_file_test." + std::to_string(::getpid()));
};

TEST_F(AtomicFileTest, AppearsOnlyWhenCommitted) {
  const auto path = folder_ / "a";
  write_file_atomically(path, "old");
  {
    AtomicFile file(path);
    file.write("new");
  }
  EXPECT_EQ(read_file(path), "old");
  write_file_atomically(path, "new");
  EXPECT_EQ(read_file(path), "new");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(AtomicFileTest, FullDiskIsAnErrorThatNamesThePath) {
  try {
    AtomicFile file("/dev/full/none");
    FAIL();
  } catch (const FileError& error) {
    EXPECT_NE(std::string(error.what()).find("/dev/full/none"), std::string::npos);
  }
}

TEST_F(AtomicFileTest, ADiskCanBeFullOnPurpose) {
  std::filesystem::create_directories(folder_ / "full" / "deep");
  write_file_atomically(folder_ / "full" / "a", "before");
  set_disk_full(folder_ / "full", Clock::now() + std::chrono::hours(1));
  try {
    write_file_atomically(folder_ / "full" / "a", "after");
    FAIL();
  } catch (const FileError& error) {
    EXPECT_NE(std::string(error.what()).find("No space left on device"), std::string::npos) << error.what();
  }
  EXPECT_THROW(write_file_atomically(folder_ / "full" / "deep" / "b", std::string(1 << 20, 'x')), FileError);
  EXPECT_EQ(read_file(folder_ / "full" / "a"), "before");
  write_file_atomically(folder_ / "fuller", "beside it there is room");
  set_disk_full(folder_ / "full", Clock::now());
  write_file_atomically(folder_ / "full" / "a", "after");
  EXPECT_EQ(read_file(folder_ / "full" / "a"), "after");
}

TEST_F(AtomicFileTest, MapsWhatWasWritten) {
  write_file_atomically(folder_ / "m", "hello");
  const MappedFile mapped(folder_ / "m");
  EXPECT_EQ(mapped.bytes().size(), 5U);
  EXPECT_THROW(MappedFile(folder_ / "missing"), FileError);
}

}  // namespace
}  // namespace distbelief
