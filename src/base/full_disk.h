#pragma once

#include <filesystem>

#include "base/clock.h"

namespace distbelief {

/// Makes what AtomicFile writes below a folder fail until then, as if the disk was full: for --chaos and for tests. Of
/// the whole process, as disks are; a later call takes the place of the one before. Thread-safe.
void set_disk_full(const std::filesystem::path& folder, Clock::time_point until);

/// Whether that is so for a file, now. Thread-safe.
bool disk_is_full(const std::filesystem::path& file);

}  // namespace distbelief
