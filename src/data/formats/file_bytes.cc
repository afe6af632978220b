#include "data/formats/file_bytes.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "tensor/buffer.h"

namespace distbelief {
namespace {

constexpr std::size_t kLargestRatio = 1032;           // deflate cannot do better
constexpr std::size_t kPiece = std::size_t{1} << 30;  // zlib counts in 32 bits

class Inflater {
 public:
  explicit Inflater(const FileBytes& file) : file_(file) {
    if (inflateInit2(&stream_, 15 + 16) != Z_OK) {
      throw FileError(fmt::format("{}: zlib cannot start", file.name));
    }
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  /// All members of the file, one after the other.
  std::shared_ptr<Buffer> run(std::size_t& size) {
    const std::size_t compressed = file_.bytes.size();
    const std::size_t limit = compressed * kLargestRatio;
    // The last four bytes tell the size; they are believed only as far as they can be true. One more, to see the end.
    const std::size_t told = read_little_endian<std::uint32_t>(file_.bytes.data() + compressed - 4);
    auto out = std::make_shared<Buffer>(std::clamp<std::size_t>(told, 64, limit) + 1);
    while (position_ < compressed) {
      if (size == out->bytes()) {
        out = grown(*out, size);
      }
      const std::size_t in_piece = std::min(compressed - position_, kPiece);
      const std::size_t out_piece = std::min(out->bytes() - size, kPiece);
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(file_.bytes.data() + position_));
      stream_.avail_in = static_cast<uInt>(in_piece);
      stream_.next_out = reinterpret_cast<Bytef*>(out->data() + size);
      stream_.avail_out = static_cast<uInt>(out_piece);
      const int result = inflate(&stream_, Z_NO_FLUSH);
      position_ += in_piece - stream_.avail_in;
      size += out_piece - stream_.avail_out;
      if (result == Z_STREAM_END) {
        if (rest_is_padding()) {
          return out;
        }
        inflateReset(&stream_);
      } else if (result != Z_OK) {
        throw FileError(fmt::format("{}: broken gzip data at byte {}: {}", file_.name, position_,
                                    stream_.msg != nullptr ? stream_.msg : "expected more"));
      }
    }
    throw FileError(
        fmt::format("{}: gzip data end early, after {} bytes: the file is truncated", file_.name, compressed));
  }

 private:
  static std::shared_ptr<Buffer> grown(const Buffer& old, std::size_t size) {
    auto larger = std::make_shared<Buffer>(old.bytes() * 2);
    std::memcpy(larger->data(), old.data(), size);
    return larger;
  }
  bool rest_is_padding() const {
    const auto rest = file_.bytes.subspan(position_);
    return std::all_of(rest.begin(), rest.end(), [](std::byte byte) { return byte == std::byte{0}; });
  }

  const FileBytes& file_;
  z_stream stream_{};
  std::size_t position_ = 0;
};

}  // namespace

FileBytes inflate_if_gzip(FileBytes file) {
  constexpr std::size_t kShortestMember = 18;
  if (file.bytes.size() < 2 || file.bytes[0] != std::byte{0x1F} || file.bytes[1] != std::byte{0x8B}) {
    return file;
  }
  if (file.bytes.size() < kShortestMember) {
    throw FileError(
        fmt::format("{}: gzip data end early, after {} bytes: the file is truncated", file.name, file.bytes.size()));
  }
  std::size_t size = 0;
  const std::shared_ptr<Buffer> out = Inflater(file).run(size);
  return {file.name, out, std::span(out->data(), size)};
}

FileBytes open_file_bytes(const std::filesystem::path& path) {
  const auto mapped = std::make_shared<MappedFile>(path);
  return inflate_if_gzip({path.string(), mapped, mapped->bytes()});
}

}  // namespace distbelief
