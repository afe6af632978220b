#include "data/formats/npy.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

#include "base/bytes.h"
#include "base/error.h"

namespace distbelief {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::int64_t kMostLabels = 1 << 20;

/// What follows 'KEY': in the header, a Python dictionary as NumPy itself writes it.
std::string_view value_of(std::string_view header, std::string_view key, const FileBytes& file) {
  const std::size_t at = header.find(fmt::format("'{}':", key));
  if (at == std::string_view::npos) {
    throw FileError(fmt::format("{}: the header has no '{}'", file.name, key));
  }
  header.remove_prefix(at + key.size() + 3);
  const std::size_t begin = header.find_first_not_of(' ');
  return begin == std::string_view::npos ? std::string_view{} : header.substr(begin);
}

ArrayElement parse_type(std::string_view text, const FileBytes& file) {
  constexpr std::pair<std::string_view, ArrayElement> kTypes[] = {{"'|u1'", ArrayElement::u8},
                                                                  {"'<i4'", ArrayElement::i32},
                                                                  {"'<i8'", ArrayElement::i64},
                                                                  {"'<f4'", ArrayElement::f32},
                                                                  {"'<f8'", ArrayElement::f64}};
  for (const auto& [name, type] : kTypes) {
    if (text.starts_with(name)) {
      return type;
    }
  }
  std::string given(text.substr(0, std::min<std::size_t>(text.find(','), 12)));
  std::replace_if(
      given.begin(), given.end(), [](unsigned char c) { return c < 0x20 || c > 0x7E; }, '?');
  throw FileError(fmt::format("{}: type {}: expected '|u1', '<i4', '<i8', '<f4' or '<f8'", file.name, given));
}

std::vector<std::int64_t> parse_dims(std::string_view text, std::uint64_t most, const FileBytes& file) {
  std::vector<std::int64_t> dims;
  std::uint64_t elements = 1;
  const std::size_t end = text.find(')');
  if (!text.starts_with('(') || end == std::string_view::npos) {
    throw FileError(fmt::format("{}: the header's shape is no tuple", file.name));
  }
  text = text.substr(1, end - 1);
  while (text.find_first_not_of(" ,") != std::string_view::npos) {
    text.remove_prefix(text.find_first_not_of(" ,"));
    std::int64_t dim = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), dim);
    if (result.ec != std::errc{} || dim < 0) {
      throw FileError(fmt::format("{}: the header's shape holds something else than counts", file.name));
    }
    if (dim == 0) {
      throw FileError(fmt::format("{}: dimension {} is 0: the file holds no samples", file.name, dims.size()));
    }
    if (elements > most / static_cast<std::uint64_t>(dim)) {  // before the product, so that it cannot overflow
      throw FileError(
          fmt::format("{}: the header promises more values than the {} that follow: the file is truncated or "
                      "its header corrupt",
                      file.name, most));
    }
    elements *= static_cast<std::uint64_t>(dim);
    dims.push_back(dim);
    text.remove_prefix(static_cast<std::size_t>(result.ptr - text.data()));
  }
  return dims;
}

template <typename T>
T value_at(const NpyArray& array, std::size_t index) {
  const std::byte* at = array.values.data() + index * bytes_of(array.type);
  switch (array.type) {
    case ArrayElement::u8:
      return static_cast<T>(std::to_integer<unsigned char>(*at));
    case ArrayElement::i32:
      return static_cast<T>(read_little_endian<std::int32_t>(at));
    case ArrayElement::i64:
      return static_cast<T>(read_little_endian<std::int64_t>(at));
    case ArrayElement::f32:
      return static_cast<T>(read_little_endian<float>(at));
    case ArrayElement::f64:
      return static_cast<T>(read_little_endian<double>(at));
  }
  return {};
}

bool is_float(ArrayElement type) { return type == ArrayElement::f32 || type == ArrayElement::f64; }

void add_classes(const NpyArray& array, const FileBytes& file, const NpyOptions& options,
                 ArrayDataset::Contents& contents) {
  const std::int64_t most = options.classes > 0 ? options.classes : kMostLabels;
  std::int64_t seen = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(array.dims[0]); ++i) {
    const std::int64_t label = value_at<std::int64_t>(array, i);
    if (label < 0 || label >= most) {
      throw FileError(fmt::format("{}: entry {}: label {}: expected 0 to {}", file.name, i, label, most - 1));
    }
    seen = std::max(seen, label + 1);
    contents.targets.classes.push_back(static_cast<std::int32_t>(label));
  }
  contents.spec.classes = options.classes > 0 ? options.classes : seen;
}

void add_labels(const FileBytes& file, const FileBytes& inputs, const NpyOptions& options,
                ArrayDataset::Contents& contents) {
  const NpyArray array = parse_npy(file);
  const std::uint64_t rows = contents.blocks[0].rows;
  if (array.dims.size() > 2 || static_cast<std::uint64_t>(array.dims[0]) != rows) {
    throw FileError(fmt::format("{}: labels of shape {}, but {} has {} samples: expected {} or {}xK", file.name,
                                Shape(array.dims).text(), inputs.name, rows, rows, rows));
  }
  const std::int64_t columns = array.dims.size() == 2 ? array.dims[1] : 1;
  if (options.target != TargetKind::values && !is_float(array.type) && columns == 1) {
    add_classes(array, file, options, contents);
    return;
  }
  if (options.target == TargetKind::classes) {
    throw FileError(fmt::format("{}: expected one integer for each sample as its class", file.name));
  }
  contents.spec.targets = columns;
  for (std::size_t i = 0; i < static_cast<std::size_t>(array.dims[0] * columns); ++i) {
    const float value = value_at<float>(array, i);
    if (!std::isfinite(value)) {
      throw FileError(fmt::format("{}: entry {}: expected a finite number, not {}", file.name, i, value));
    }
    contents.targets.values.push_back(value);
  }
}

}  // namespace

NpyArray parse_npy(const FileBytes& file) {
  const std::string_view text(file.text(), file.bytes.size());
  if (text.size() < 10 || !text.starts_with(kMagic)) {
    throw FileError(fmt::format("{}: not a NPY file: expected it to begin with \\x93NUMPY", file.name));
  }
  const int version = static_cast<unsigned char>(text[6]);
  if (version < 1 || version > 3) {
    throw FileError(fmt::format("{}: byte 6: NPY version {}: expected 1, 2 or 3", file.name, version));
  }
  const std::size_t begin = version == 1 ? 10 : 12;
  if (text.size() < begin) {
    throw FileError(fmt::format("{}: the header ends early, after {} bytes", file.name, text.size()));
  }
  const std::size_t length = version == 1 ? read_little_endian<std::uint16_t>(text.data() + 8)
                                          : read_little_endian<std::uint32_t>(text.data() + 8);
  if (length > text.size() - begin) {
    throw FileError(
        fmt::format("{}: byte 8: a header of {} bytes does not fit a file of {}", file.name, length, text.size()));
  }
  const std::string_view header = text.substr(begin, length);
  NpyArray array;
  array.values = file.bytes.subspan(begin + length);
  array.type = parse_type(value_of(header, "descr", file), file);
  if (!value_of(header, "fortran_order", file).starts_with("False")) {
    throw FileError(fmt::format("{}: expected C order; save it with numpy.ascontiguousarray()", file.name));
  }
  const std::uint64_t values = array.values.size() / bytes_of(array.type);
  array.dims = parse_dims(value_of(header, "shape", file), values, file);
  if (array.dims.empty()) {
    throw FileError(fmt::format("{}: a single number: expected an array of samples", file.name));
  }
  const std::uint64_t expected = static_cast<std::uint64_t>(Shape(array.dims).elements()) * bytes_of(array.type);
  if (expected != array.values.size()) {
    throw FileError(fmt::format("{}: expected {} bytes after the header, but there are {}", file.name, expected,
                                array.values.size()));
  }
  return array;
}

std::shared_ptr<const Dataset> open_npy(const FileBytes& inputs, const FileBytes* labels, const NpyOptions& options) {
  const NpyArray array = parse_npy(inputs);
  ArrayDataset::Contents contents;
  std::vector<std::int64_t> sample(array.dims.begin() + 1, array.dims.end());
  if (sample.empty()) {
    sample.push_back(1);
  }
  contents.type = array.type;
  contents.spec.indices = array.type == ArrayElement::i32 || array.type == ArrayElement::i64;
  if (sample.size() == 2 && !contents.spec.indices) {
    sample.insert(sample.begin(), 1);  // images of one channel
  }
  contents.spec.input = Shape(std::move(sample));
  const std::size_t stride = static_cast<std::size_t>(contents.spec.input.elements()) * bytes_of(array.type);
  contents.blocks.push_back({inputs.owner, array.values.data(), stride, static_cast<std::uint64_t>(array.dims[0])});
  contents.in_memory = array.values.size() <= options.memory_limit;
  if (contents.in_memory && is_float(array.type)) {  // what is read piece by piece would be read twice
    const auto values = static_cast<std::size_t>(Shape(array.dims).elements());
    for (std::size_t i = 0; i < values; ++i) {
      if (const float value = value_at<float>(array, i); !std::isfinite(value)) {
        throw FileError(fmt::format("{}: sample {}: expected finite numbers, not {}", inputs.name,
                                    i / (values / static_cast<std::size_t>(array.dims[0])), value));
      }
    }
  }
  if (labels != nullptr) {
    add_labels(*labels, inputs, options, contents);
  }
  return std::make_shared<ArrayDataset>(std::move(contents));
}

std::filesystem::path find_npy_labels(const std::filesystem::path& inputs) {
  const std::string name = inputs.filename().string();
  std::vector<std::string> candidates;
  if (name.starts_with("x") || name.starts_with("X")) {
    candidates = {"y" + name.substr(1), "Y" + name.substr(1)};
  }
  candidates.push_back(inputs.stem().string() + "_labels.npy");
  for (const std::string& candidate : candidates) {
    if (const auto path = inputs.parent_path() / candidate; std::filesystem::exists(path)) {
      return path;
    }
  }
  return {};
}

}  // namespace distbelief
