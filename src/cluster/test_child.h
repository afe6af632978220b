#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "cluster/child_process.h"
#include "cluster/test_folder.h"
#include "cluster/test_job.h"

namespace distbelief {

/// For tests: names what a copy of the test program does instead of testing; see launcher_test.cc.
inline constexpr char kBodyVariable[] = "DISTBELIEF_TEST_BODY";

/// For tests: lines that processes of a test write, read in order of their coming.
class LinePipe {
 public:
  explicit LinePipe(const std::filesystem::path& path) : path_(path) {
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
    fd_ = FileDescriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));  // writing too: no end when the last writer goes
  }
  const std::filesystem::path& path() const { return path_; }

  /// Fails the test when none comes.
  std::string next() {
    const auto deadline = soon();
    while (buffer_.find('\n') == std::string::npos) {
      pollfd wait{fd_.get(), POLLIN, 0};
      ::poll(&wait, 1, 1000);
      char bytes[512];
      if (wait.revents != 0) {
        buffer_.append(bytes, static_cast<std::size_t>(::read(fd_.get(), bytes, sizeof bytes)));
      } else if (Clock::now() >= deadline) {
        ADD_FAILURE() << "a line that did not come";
        return {};
      }
    }
    const std::string line = buffer_.substr(0, buffer_.find('\n'));
    buffer_.erase(0, line.size() + 1);
    return line;
  }

 private:
  std::filesystem::path path_;
  FileDescriptor fd_;
  std::string buffer_;
};

/// `sh -c SCRIPT`, with $PIPE for a LinePipe.
inline ProcessSpec shell(const std::string& name, const std::string& script, const std::filesystem::path& log = {},
                         const LinePipe* pipe = nullptr) {
  ProcessSpec spec{.name = name, .argv = {"/bin/sh", "-c", script}, .environment = {"PATH=/usr/bin:/bin"}, .log = log};
  if (pipe != nullptr) {
    spec.environment.push_back("PIPE=" + pipe->path().string());
  }
  return spec;
}

/// A copy of the test program that does `body` instead.
inline ProcessSpec body(const std::string& name, std::vector<std::string> environment,
                        const std::filesystem::path& log) {
  environment.push_back(std::string(kBodyVariable) + "=" + name);
  return {.name = name, .argv = {"/proc/self/exe"}, .environment = std::move(environment), .log = log};
}

}  // namespace distbelief
