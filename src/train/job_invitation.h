#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/clock.h"
#include "transport/address.h"
#include "transport/fabric.h"

namespace distbelief {

/// All that a process must know to join a job whose folder it may not see. Holds the token, so it travels on standard
/// input or over the data plane, never on a command line.
struct JobInvitation {
  std::filesystem::path folder = {};          ///< of the run, where the leader is
  std::filesystem::path working_folder = {};  ///< relative names of data are meant from here
  std::vector<Address> addresses = {};        ///< of the coordinator; one of them can be reached
  std::string token = {};
  std::string config = {};  ///< run.yaml
  std::string host = {};    ///< what this process's machine is called in the job; empty: as it calls itself
  int rank = -1;            ///< below 0: any
  std::uint64_t launch = 0;
  bool resumes = false;
  int restarts = 0;  ///< how often the job was started again before

  /// One line, with its newline.
  std::string text() const;
  /// Throws InputError.
  static JobInvitation parse(const std::string& text);
  /// Reads one line from a descriptor, byte by byte: what follows stays there. Throws InputError when it does not come
  /// by the deadline, or is none.
  static JobInvitation read(int fd, Clock::time_point deadline);
};

/// Everybody gets the text of rank 0. All ranks call it, first thing on a new fabric.
Outcome share_text(Fabric& fabric, std::string& text, std::chrono::seconds patience);

}  // namespace distbelief
