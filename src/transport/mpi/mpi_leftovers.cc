#include "transport/mpi/mpi_leftovers.h"

#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <ctime>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/process_identity.h"

namespace distbelief {
namespace {

namespace fs = std::filesystem;

constexpr std::time_t kUntouchedSeconds = 60;
constexpr std::string_view kSegmentPrefix = "vader_segment.";
constexpr std::string_view kSessionPrefix = "ompi.";

template <typename T>
std::optional<T> parse(std::string_view text, int base = 10) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

/// Cuts ".last" off the end of `text` and returns "last".
std::string_view cut_last(std::string_view& text) {
  const auto dot = text.rfind('.');
  if (dot == std::string_view::npos) {
    return {};
  }
  const std::string_view last = text.substr(dot + 1);
  text = text.substr(0, dot);
  return last;
}

bool is_this_host(std::string_view name) {
  char text[256] = {};
  if (::gethostname(text, sizeof text - 1) != 0) {
    return false;
  }
  const std::string_view host = text;
  return name == host || name == host.substr(0, host.find('.'));  // Open MPI cuts the domain off
}

/// "HOST.UID" of this host and this user.
bool is_ours(std::string_view host_and_user) {
  const auto user = parse<uid_t>(cut_last(host_and_user));
  return user == ::getuid() && is_this_host(host_and_user);
}

/// The entry itself, not what a link points to; nothing when it is not this user's.
std::optional<struct stat> look_at_own(const fs::path& path) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0 || found.st_uid != ::getuid()) {
    return std::nullopt;
  }
  return found;
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    paths.push_back(entry->path());
  }
  return paths;
}

/// All files that processes of this user have mapped; nothing when one of them does not let us see.
std::optional<std::set<std::string>> mapped_files() {
  std::set<std::string> files;
  for (const fs::path& process : entries("/proc")) {
    const auto pid = parse<pid_t>(process.filename().native());
    if (!pid || !look_at_own(process)) {
      continue;
    }
    std::ifstream maps(process / "maps");
    if (!maps && *pid != 1 && fs::exists(process)) {  // an init that hides itself, even from root, is no rank
      return std::nullopt;
    }
    for (std::string line; std::getline(maps, line);) {
      if (const auto slash = line.find('/'); slash != std::string::npos) {
        files.insert(line.substr(slash));
      }
    }
  }
  return files;
}

bool any_below(const std::set<std::string>& files, const fs::path& folder) {
  const std::string prefix = folder.native() + "/";
  const auto first = files.lower_bound(prefix);
  return first != files.end() && first->compare(0, prefix.size(), prefix) == 0;
}

/// The job family (the upper half of a job's number) of the mpirun whose session folder this is: contact.txt begins
/// with its name, "JOB.0;tcp://…".
std::optional<std::uint32_t> job_family(const fs::path& session) {
  std::ifstream contact(session / "contact.txt");
  std::string line;
  std::getline(contact, line);
  const auto job = parse<std::uint32_t>(std::string_view(line).substr(0, line.find('.')));
  return job ? std::optional(*job >> 16) : std::nullopt;
}

}  // namespace

std::vector<fs::path> remove_mpi_leftovers(const fs::path& temporary, const fs::path& shared_memory) {
  std::vector<fs::path> removed;
  const auto mapped = mapped_files();
  if (!mapped) {
    return removed;
  }
  std::error_code error;
  std::set<std::uint32_t> dead_families;
  for (const fs::path& top : entries(temporary)) {
    const std::string name = top.filename().native();
    const auto found = look_at_own(top);
    if (!name.starts_with(kSessionPrefix) || !is_ours(std::string_view(name).substr(kSessionPrefix.size())) || !found ||
        !S_ISDIR(found->st_mode)) {
      continue;
    }
    for (const fs::path& session : entries(top)) {
      const std::string folder = session.filename().native();
      const auto pid = folder.starts_with("pid.") ? parse<pid_t>(std::string_view(folder).substr(4)) : std::nullopt;
      const auto own = look_at_own(session);
      if (!pid || *pid <= 0 || !is_gone(*pid) || !own || !S_ISDIR(own->st_mode) || any_below(*mapped, session)) {
        continue;
      }
      if (const auto family = job_family(session)) {
        dead_families.insert(*family);
      }
      if (fs::remove_all(session, error) != static_cast<std::uintmax_t>(-1) && !error) {
        removed.push_back(session);
      }
    }
    fs::remove(top, error);  // fails, as it should, when another session is in it
  }
  for (const fs::path& segment : entries(shared_memory)) {
    const std::string name = segment.filename().native();
    if (!name.starts_with(kSegmentPrefix)) {
      continue;
    }
    std::string_view rest = std::string_view(name).substr(kSegmentPrefix.size());
    const auto rank = parse<std::uint32_t>(cut_last(rest));
    const auto job = parse<std::uint32_t>(cut_last(rest), 16);
    const auto found = look_at_own(segment);
    if (!rank || !job || !is_ours(rest) || !found || !S_ISREG(found->st_mode) || mapped->contains(segment.native())) {
      continue;
    }
    const bool untouched = std::time(nullptr) - found->st_mtime > kUntouchedSeconds;
    if ((untouched || dead_families.contains(*job >> 16)) && fs::remove(segment, error)) {
      removed.push_back(segment);
    }
  }
  return removed;
}

}  // namespace distbelief
