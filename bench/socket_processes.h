#pragma once

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "transport/socket/socket_fabric.h"
#include "transport/temporary_folder.h"

namespace distbelief {

/// Processes of this program with unix sockets between them. Rank 0, the process that the user started, starts the
/// others with the options --rank and --folder added to its own, and waits for them at its end; they end by
/// themselves when it closes its links.
class SocketProcesses {
 public:
  /// `words`: this process's own command line. `folder`: where the others listen; empty for rank 0, which makes one.
  SocketProcesses(const std::vector<std::string>& words, int processes, int rank, std::filesystem::path folder,
                  Clock::time_point deadline) {
    if (rank == 0) {
      folder = own_.emplace().path();
      for (int other = 1; other < processes; ++other) {
        start(words, other, folder);
      }
    }
    std::vector<Address> addresses;
    for (int i = 0; i < processes; ++i) {
      addresses.push_back(Address::unix_path((folder / std::to_string(i)).string()));
    }
    SocketListener listener(addresses[static_cast<std::size_t>(rank)]);
    wait_for_all(folder, processes, rank, deadline);
    SocketFabricResult result = connect_socket_fabric(Rank{rank}, addresses, listener, {}, deadline);
    if (result.fabric == nullptr) {
      throw Error(result.reason);
    }
    fabric_ = std::move(result.fabric);
  }
  ~SocketProcesses() {
    fabric_.reset();  // before the others are waited for
    for (const pid_t pid : pids_) {
      ::waitpid(pid, nullptr, 0);
    }
  }
  SocketProcesses(const SocketProcesses&) = delete;
  SocketProcesses& operator=(const SocketProcesses&) = delete;

  Fabric& fabric() { return *fabric_; }

 private:
  void start(std::vector<std::string> words, int rank, const std::filesystem::path& folder) {
    words.insert(words.end(), {"--rank", std::to_string(rank), "--folder", folder.string()});
    std::vector<char*> argv;
    for (std::string& word : words) {
      argv.push_back(word.data());
    }
    argv.push_back(nullptr);
    pid_t pid = 0;
    if (::posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, argv.data(), ::environ) != 0) {
      throw Error("cannot start another process");
    }
    pids_.push_back(pid);
  }

  /// Returns when every rank listens: each says so by a file.
  static void wait_for_all(const std::filesystem::path& folder, int processes, int rank, Clock::time_point deadline) {
    const auto listens = [&](int of) { return folder / fmt::format("{}.listens", of); };
    std::ofstream(listens(rank)).close();
    for (int other = 0; other < processes; ++other) {
      while (!std::filesystem::exists(listens(other))) {
        if (Clock::now() > deadline) {
          throw Error(fmt::format("rank {} never listened", other));
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }

  std::optional<TemporaryFolder> own_;
  std::vector<pid_t> pids_;
  std::unique_ptr<Fabric> fabric_;
};

}  // namespace distbelief
