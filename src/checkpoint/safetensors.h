#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "tensor/shape.h"

namespace distbelief {

/// The safetensors format: eight bytes with the length of a JSON header, the header, then the tensors' bytes without
/// gaps. Any program that reads safetensors reads our files, and we read theirs.

/// One named array to be written: `values` is borrowed and has shape.elements() numbers, or `read` brings them, from
/// the first to the last, at most kPieceFloats at a time.
struct FloatArray {
  static constexpr std::int64_t kPieceFloats = std::int64_t{1} << 20;

  std::string name;
  Shape shape;
  std::span<const float> values = {};
  std::function<void(std::int64_t first, std::span<float> out)> read = {};
};

/// What a manifest says of a file.
struct FileSummary {
  std::uint64_t bytes = 0;
  std::uint32_t crc32c = 0;
  friend bool operator==(const FileSummary&, const FileSummary&) = default;
};

/// Writes the arrays as F32, ordered by name; the file appears only when it is whole. Throws FileError when it cannot
/// be written. Names must differ and must not be "__metadata__".
FileSummary write_safetensors(const std::filesystem::path& path, std::span<const FloatArray> arrays,
                              const std::map<std::string, std::string>& metadata = {});

enum class ElementType { f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, boolean };

std::size_t size_of(ElementType type);
/// As the format spells it: "F32".
std::string_view name_of(ElementType type);

/// One tensor of a file. begin and end count bytes from the end of the header.
struct TensorEntry {
  std::string name;
  ElementType type = ElementType::f32;
  Shape shape;
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// The tensors inside a file's bytes, which it borrows. The constructor believes nothing: it throws FileError with
/// `file`, the tensor and what was expected unless the header is sound and the tensors fill the data exactly, one after
/// the other. Immutable afterwards, so any thread may read.
class SafetensorsView {
 public:
  SafetensorsView(std::span<const std::byte> bytes, std::string file);

  /// In the order of their bytes.
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& file() const { return file_; }

  /// nullptr when there is none of this name.
  const TensorEntry* find(std::string_view name) const;
  /// Throws FileError when there is none of this name, or it has another shape.
  const TensorEntry& expect(std::string_view name, const Shape& shape) const;
  /// The bytes as they are in the file; they need not be aligned.
  std::span<const std::byte> bytes(const TensorEntry& tensor) const {
    return data_.subspan(tensor.begin, tensor.end - tensor.begin);
  }
  /// Copies the tensor, converted to float; `out` has shape.elements() places.
  void read(const TensorEntry& tensor, std::span<float> out) const { read(tensor, 0, out); }
  /// The same of as many elements as `out` has places, beginning with the first-th.
  void read(const TensorEntry& tensor, std::int64_t first, std::span<float> out) const;

 private:
  std::string file_;
  std::span<const std::byte> data_;
  std::vector<TensorEntry> tensors_;
  std::map<std::string, std::size_t, std::less<>> index_;
  std::map<std::string, std::string> metadata_;
};

/// A safetensors file on disk, mapped: tensors that nobody reads cost nothing.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path) : mapped_(path), view_(mapped_.bytes(), path.string()) {}
  const SafetensorsView& view() const { return view_; }
  std::span<const std::byte> bytes() const { return mapped_.bytes(); }

 private:
  MappedFile mapped_;
  SafetensorsView view_;
};

}  // namespace distbelief
