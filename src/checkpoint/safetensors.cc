#include "checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"
#include "base/json.h"

namespace distbelief {
namespace {

/// What is read: found by name at once, as a header may have a million of them.
using HeaderJson = nlohmann::json;

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // as in the reference implementation
constexpr const char* kMetadataKey = "__metadata__";

/// Quoted, on one line, whatever the file put into the name.
std::string in_quotes(std::string_view name) {
  return HeaderJson(name).dump(-1, ' ', true, HeaderJson::error_handler_t::replace);
}

/// Reads one tensor's part of the header; every complaint names the file and the tensor.
class EntryReader {
 public:
  EntryReader(const std::string& file, const std::string& name, std::size_t data_bytes)
      : file_(file), name_(name), data_bytes_(data_bytes) {}

  TensorEntry read(const HeaderJson& entry) const {
    require(entry.is_object() && entry.size() == 3 && entry.contains("dtype") && entry.contains("shape") &&
                entry.contains("data_offsets"),
            "expected exactly dtype, shape and data_offsets");
    TensorEntry tensor;
    tensor.name = name_;
    tensor.type = type(entry["dtype"]);
    std::uint64_t bytes = size_of(tensor.type);
    tensor.shape = shape(entry["shape"], bytes);
    const HeaderJson& offsets = entry["data_offsets"];
    require(
        offsets.is_array() && offsets.size() == 2 && offsets[0].is_number_unsigned() && offsets[1].is_number_unsigned(),
        "expected two non-negative integers as data_offsets");
    tensor.begin = offsets[0].get<std::uint64_t>();
    tensor.end = offsets[1].get<std::uint64_t>();
    require(tensor.begin <= tensor.end && tensor.end <= data_bytes_,
            fmt::format("data_offsets [{}, {}] are not a range within the {} bytes of data", tensor.begin, tensor.end,
                        data_bytes_));
    require(tensor.end - tensor.begin == bytes,
            fmt::format("expected {} bytes for {} {}, found {}", bytes, name_of(tensor.type), tensor.shape.text(),
                        tensor.end - tensor.begin));
    return tensor;
  }

 private:
  void require(bool condition, std::string_view complaint) const {
    if (!condition) {
      throw FileError(fmt::format("{}: tensor {}: {}", file_, in_quotes(name_), complaint));
    }
  }

  ElementType type(const HeaderJson& json) const {
    require(json.is_string(), "expected a string as dtype");
    const auto& text = json.get_ref<const std::string&>();
    for (int i = 0; i <= static_cast<int>(ElementType::boolean); ++i) {
      if (text == name_of(static_cast<ElementType>(i))) {
        return static_cast<ElementType>(i);
      }
    }
    require(false, fmt::format("dtype {} is not known; expected F32, F16, BF16, F64, I8 to I64, U8 to U64 or BOOL",
                               in_quotes(text)));
    return {};
  }

  /// Multiplies `bytes` by each dimension.
  Shape shape(const HeaderJson& json, std::uint64_t& bytes) const {
    require(json.is_array(), "expected a list of integers as shape");
    std::vector<std::int64_t> dims;
    bool fits = true;
    bool empty = false;
    for (const HeaderJson& dimension : json) {
      require(dimension.is_number_unsigned(), "expected non-negative integers in shape");
      const auto size = dimension.get<std::uint64_t>();
      require(size <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()),
              "the shape is too large for any file");
      empty = empty || size == 0;
      fits = fits && !__builtin_mul_overflow(bytes, size, &bytes);
      dims.push_back(static_cast<std::int64_t>(size));
    }
    if (empty) {
      bytes = 0;
    }
    require(fits || empty, "the shape is too large for any file");
    return Shape(std::move(dims));
  }

  const std::string& file_;
  const std::string& name_;
  std::size_t data_bytes_;
};

/// The header as JSON; refuses what is no object and names that come twice.
HeaderJson parse_header(std::span<const std::byte> header, const std::string& file) {
  const auto* text = reinterpret_cast<const char*>(header.data());
  std::set<std::string> names;
  std::string twice;
  const auto note_name = [&](int depth, HeaderJson::parse_event_t event, HeaderJson& parsed) {
    if (event == HeaderJson::parse_event_t::key && depth == 1 && !names.insert(parsed.get<std::string>()).second) {
      twice = parsed.get<std::string>();
    }
    return true;
  };
  HeaderJson json;
  try {
    json = HeaderJson::parse(text, text + header.size(), note_name);
  } catch (const HeaderJson::parse_error& error) {
    throw FileError(fmt::format("{}: expected a JSON header, found an error at byte {}", file,
                                kLengthBytes + (error.byte == 0 ? 0 : error.byte - 1)));
  } catch (const HeaderJson::out_of_range&) {
    throw FileError(fmt::format("{}: expected a JSON header, found a number too large for it", file));
  }
  if (!json.is_object()) {
    throw FileError(fmt::format("{}: expected a JSON object as header", file));
  }
  if (!twice.empty()) {
    throw FileError(fmt::format("{}: tensor {}: the header names it twice", file, in_quotes(twice)));
  }
  return json;
}

std::map<std::string, std::string> read_metadata(const HeaderJson& json, const std::string& file) {
  std::map<std::string, std::string> metadata;
  const auto complain = [&] { throw FileError(fmt::format("{}: expected strings only in {}", file, kMetadataKey)); };
  if (!json.is_object()) {
    complain();
  }
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) {
      complain();
    }
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

/// Tensors must follow each other without gap or overlap and fill the data: nothing may hide in the file.
void check_layout(const std::vector<TensorEntry>& tensors, std::size_t data_bytes, const std::string& file) {
  std::size_t expected = 0;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.begin != expected) {
      throw FileError(
          fmt::format("{}: tensor {}: expected its data to begin at {}, where the one before ends, not at {}", file,
                      in_quotes(tensor.name), expected, tensor.begin));
    }
    expected = tensor.end;
  }
  if (expected != data_bytes) {
    throw FileError(fmt::format("{}: expected {} bytes of data, found {}", file, expected, data_bytes));
  }
}

}  // namespace

FileSummary write_safetensors(const std::filesystem::path& path, std::span<const FloatArray> arrays,
                              const std::map<std::string, std::string>& metadata) {
  std::vector<const FloatArray*> sorted;
  for (const FloatArray& array : arrays) {
    check(array.read || array.values.size() == static_cast<std::size_t>(array.shape.elements()),
          "an array fills its shape");
    check(array.name != kMetadataKey, "no array is called __metadata__");
    sorted.push_back(&array);
  }
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->name < b->name; });

  Json header = Json::object();
  if (!metadata.empty()) {
    header[kMetadataKey] = metadata;
  }
  std::size_t offset = 0;
  for (const FloatArray* array : sorted) {
    check(!header.contains(array->name), "names of arrays differ");
    const std::size_t end = offset + static_cast<std::size_t>(array->shape.elements()) * sizeof(float);
    header[array->name] = {{"dtype", "F32"}, {"shape", array->shape.dims()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = json_text(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // keeps the data aligned

  FileSummary summary;
  AtomicFile file(path);
  const auto write = [&](std::span<const std::byte> bytes) {
    file.write(bytes);
    summary.bytes += bytes.size();
    summary.crc32c = crc32c(bytes, summary.crc32c);
  };
  write(as_bytes_of(static_cast<std::uint64_t>(text.size())));
  write(std::as_bytes(std::span(text)));
  std::vector<float> piece;
  for (const FloatArray* array : sorted) {
    if (!array->read) {
      write(std::as_bytes(array->values));
      continue;
    }
    const std::int64_t count = array->shape.elements();
    for (std::int64_t first = 0; first < count; first += FloatArray::kPieceFloats) {
      piece.resize(static_cast<std::size_t>(std::min(FloatArray::kPieceFloats, count - first)));
      array->read(first, piece);
      write(std::as_bytes(std::span(piece)));
    }
  }
  file.commit();
  return summary;
}

SafetensorsView::SafetensorsView(std::span<const std::byte> bytes, std::string file) : file_(std::move(file)) {
  if (bytes.size() < kLengthBytes) {
    throw FileError(fmt::format("{}: expected a safetensors file of at least {} bytes, found {}", file_, kLengthBytes,
                                bytes.size()));
  }
  const auto length = read_little_endian<std::uint64_t>(bytes.data());
  const std::size_t rest = bytes.size() - kLengthBytes;
  if (length > kMaxHeaderBytes || length > rest) {
    throw FileError(fmt::format("{}: expected a safetensors header of at most {} bytes, found a length of {}", file_,
                                std::min<std::uint64_t>(rest, kMaxHeaderBytes), length));
  }
  data_ = bytes.subspan(kLengthBytes + length);
  const HeaderJson header = parse_header(bytes.subspan(kLengthBytes, length), file_);
  for (const auto& [name, entry] : header.items()) {
    if (name == kMetadataKey) {
      metadata_ = read_metadata(entry, file_);
    } else {
      tensors_.push_back(EntryReader(file_, name, data_.size()).read(entry));
    }
  }
  std::stable_sort(tensors_.begin(), tensors_.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  check_layout(tensors_, data_.size(), file_);
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    index_[tensors_[i].name] = i;
  }
}

const TensorEntry* SafetensorsView::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const TensorEntry& SafetensorsView::expect(std::string_view name, const Shape& shape) const {
  const TensorEntry* tensor = find(name);
  if (tensor == nullptr) {
    throw FileError(
        fmt::format("{}: expected a tensor {} of shape {}, found none", file_, in_quotes(name), shape.text()));
  }
  if (tensor->shape != shape) {
    throw FileError(fmt::format("{}: tensor {}: expected shape {}, found {}", file_, in_quotes(name), shape.text(),
                                tensor->shape.text()));
  }
  return *tensor;
}

}  // namespace distbelief
