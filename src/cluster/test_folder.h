#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace distbelief {

/// For tests: a folder that goes when the test ends.
class ClusterTestFolder {
 public:
  ClusterTestFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "distbelief_cluster_test.XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~ClusterTestFolder() { std::filesystem::remove_all(path_); }
  ClusterTestFolder(const ClusterTestFolder&) = delete;
  ClusterTestFolder& operator=(const ClusterTestFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace distbelief
