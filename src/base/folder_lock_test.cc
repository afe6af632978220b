#include "base/folder_lock.h"

#include <gtest/gtest.h>

#include <optional>

#include "base/error.h"

namespace distbelief {
namespace {

class FolderLockTest : public ::testing::Test {
 protected:
  FolderLockTest() {
    std::string name = (std::filesystem::temp_directory_path() / "distbelief-lock-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~FolderLockTest() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST_F(FolderLockTest, KeepsOthersOutUntilItEnds) {
  {
    const FolderLock lock(folder_);
    try {
      const FolderLock second(folder_);
      FAIL() << "two have it";
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(folder_.string()), std::string::npos) << error.what();
    }
  }
  EXPECT_NO_THROW(FolderLock{folder_});
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(FolderLockTest, MayBeHandedOn) {
  std::optional<FolderLock> kept;
  {
    FolderLock lock(folder_);
    kept.emplace(std::move(lock));
  }
  EXPECT_THROW(FolderLock{folder_}, InputError);
}

TEST_F(FolderLockTest, NeedsAFolder) { EXPECT_THROW(FolderLock{folder_ / "none"}, FileError); }

}  // namespace
}  // namespace distbelief
