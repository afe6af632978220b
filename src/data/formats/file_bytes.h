#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace distbelief {

/// The contents of a data file: mapped when it is plain (so read in pieces, as needed), in memory when it was gzipped.
/// `owner` keeps the bytes; it is shared because a data set outlives its opening and several can look at one file.
struct FileBytes {
  std::string name;  ///< for messages
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;

  const char* text() const { return reinterpret_cast<const char*>(bytes.data()); }
};

/// Maps the file; inflates it when its first bytes say gzip, whatever its name. Throws FileError.
FileBytes open_file_bytes(const std::filesystem::path& path);

/// The inflated contents when `file` holds gzip, otherwise `file` itself. Throws FileError, naming the place, when the
/// compressed data are broken or end early. Takes no more memory than the compressed size can justify.
FileBytes inflate_if_gzip(FileBytes file);

}  // namespace distbelief
