#include "base/mapped_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"

namespace distbelief {
namespace {

/// Reads a byte that is gone from a file that was mapped.
void read_what_is_gone(const std::filesystem::path& path) {
  name_files_that_shrink();
  std::ofstream(path) << std::string(10000, 'x');
  const MappedFile file(path);
  std::filesystem::resize_file(path, 0);
  const volatile std::byte* bytes = file.bytes().data();
  (void)bytes[9000];
}

TEST(MappedFilesDeathTest, AFileThatShrinksIsNamed) {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "distbelief-shrinks.bin";
  EXPECT_EXIT(read_what_is_gone(path), ::testing::ExitedWithCode(2), "distbelief-shrinks.bin: became shorter");
  std::filesystem::remove(path);
}

TEST(MappedFiles, PlacesAreUsedAgainAndAFullTableIsNoProblem) {
  const char bytes[4] = {};
  const int place = remember_mapping(bytes, sizeof bytes, "a");
  ASSERT_GE(place, 0);
  forget_mapping(place);
  EXPECT_EQ(remember_mapping(bytes, sizeof bytes, "b"), place);
  forget_mapping(place);
  std::vector<int> places;
  for (int i = 0; i < 1000; ++i) {
    places.push_back(remember_mapping(bytes, sizeof bytes, "c"));
  }
  EXPECT_EQ(places.back(), -1);
  for (const int taken : places) {
    forget_mapping(taken);
  }
}

}  // namespace
}  // namespace distbelief
