#include "data/formats/text_rows.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/utf8_text.h"

namespace distbelief {
namespace {

constexpr std::int64_t kMostAutomaticClasses = 10000;
constexpr std::int64_t kMostClasses = 1 << 20;

std::string_view without_plus(std::string_view text) {
  return text.size() > 1 && text[0] == '+' && text[1] != '-' ? text.substr(1) : text;
}

bool is_whole(float value) { return value == std::floor(value); }

/// Text of the user in a message: short and printable, so that the message stays one line.
std::string quoted(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 40)) {
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
  }
  return text.size() > 40 ? out + "..." : out;
}

struct TextContents {
  SampleSpec spec;
  std::vector<std::string> names;
  ArrayTargets targets;
  FileBytes file;
  LineParser parser;
  std::vector<std::uint64_t> lines;  // where each sample's line begins
  bool stored = true;
  SparseRows rows;  // when stored; dense rows use only the values
};

/// The samples of a file of lines: parsed in memory, or parsed when asked for.
class TextDataset final : public Dataset {
 public:
  explicit TextDataset(TextContents contents) : contents_(std::move(contents)) {}

  const SampleSpec& spec() const override { return contents_.spec; }
  std::uint64_t size() const override { return contents_.lines.size(); }
  std::vector<std::string> class_names() const override { return contents_.names; }
  bool cheap() const override { return contents_.stored; }

  void read(std::span<const std::uint64_t> ids, std::uint64_t epoch, Batch& batch) const override {
    start_batch(contents_.spec, ids, epoch, batch);
    const std::size_t features = static_cast<std::size_t>(contents_.spec.input.elements());
    TextRow row;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      std::span<const float> values;
      std::span<const std::int32_t> columns;
      if (contents_.stored) {
        const std::size_t begin =
            contents_.spec.sparse ? static_cast<std::size_t>(contents_.rows.offsets[ids[i]]) : ids[i] * features;
        const std::size_t end =
            contents_.spec.sparse ? static_cast<std::size_t>(contents_.rows.offsets[ids[i] + 1]) : begin + features;
        values = std::span(contents_.rows.values).subspan(begin, end - begin);
        columns = contents_.spec.sparse ? std::span(contents_.rows.columns).subspan(begin, end - begin) : columns;
      } else {
        parse_again(ids[i], row);
        values = row.values;
        columns = row.columns;
      }
      if (contents_.spec.sparse) {
        batch.sparse.columns.insert(batch.sparse.columns.end(), columns.begin(), columns.end());
        batch.sparse.values.insert(batch.sparse.values.end(), values.begin(), values.end());
        batch.sparse.offsets.push_back(static_cast<std::int64_t>(batch.sparse.columns.size()));
      } else {
        std::copy(values.begin(), values.end(), batch.dense.begin() + static_cast<std::ptrdiff_t>(i * features));
      }
      if (contents_.spec.classes > 0) {
        batch.classes[i] = contents_.targets.classes[ids[i]];
      } else if (contents_.spec.targets > 0) {
        batch.targets[i] = contents_.targets.values[ids[i]];
      }
    }
  }

 private:
  void parse_again(std::uint64_t id, TextRow& row) const {
    const std::string_view text(contents_.file.text(), contents_.file.bytes.size());
    const LinePlace place{contents_.file.name, 0, contents_.lines[id]};
    std::string_view line = text.substr(contents_.lines[id]);
    line = line.substr(0, line.find('\n'));
    contents_.parser(line.ends_with('\r') ? line.substr(0, line.size() - 1) : line, place, row);
    if (!contents_.spec.sparse && row.values.size() != static_cast<std::size_t>(contents_.spec.input.elements())) {
      throw FileError(fmt::format("{}: the file was changed while in use", place.text()));
    }
  }

  TextContents contents_;
};

}  // namespace

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlanks);
  return first == std::string_view::npos ? std::string_view{}
                                         : text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::string LinePlace::text() const {
  return line > 0 ? fmt::format("{}:{}", file, line) : fmt::format("{}: byte {}", file, offset);
}

std::optional<float> to_number(std::string_view text) {
  text = without_plus(text);
  double value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || result.ec != std::errc{} || result.ptr != text.data() + text.size() ||
      !std::isfinite(static_cast<float>(value))) {
    return std::nullopt;
  }
  return static_cast<float>(value);
}

void fail_number(std::string_view text, const LinePlace& place, std::string_view what, std::int64_t which) {
  throw FileError(text.empty() ? fmt::format("{}: {} {} is empty: expected a number", place.text(), what, which)
                               : fmt::format("{}: {} {}: expected a finite number, not '{}'", place.text(), what, which,
                                             quoted(text)));
}

LabelReader::LabelReader(const TextOptions& options) : options_(options) {
  if (options.like != nullptr) {
    fixed_names_ = options.like->class_names();
    options_.target = options.like->spec().classes > 0 ? TargetKind::classes : TargetKind::values;
    options_.classes = options.like->spec().classes;
    for (std::size_t i = 0; i < fixed_names_.size(); ++i) {
      word_classes_[fixed_names_[i]] = static_cast<std::int32_t>(i);
    }
  }
  words_ = !fixed_names_.empty();
}

void LabelReader::add_word(std::string_view label, const LinePlace& place) {
  const auto [entry, inserted] =
      word_classes_.try_emplace(std::string(label), static_cast<std::int32_t>(word_classes_.size()));
  if (inserted && !fixed_names_.empty()) {
    throw FileError(fmt::format("{}: label '{}' is none of the {} classes of the training data", place.text(),
                                quoted(label), fixed_names_.size()));
  }
  if (static_cast<std::int64_t>(word_classes_.size()) > kMostClasses) {
    throw FileError(fmt::format("{}: more than {} different labels", place.text(), kMostClasses));
  }
  classes_.push_back(entry->second);
}

void LabelReader::add(std::string_view label, const LinePlace& place) {
  if (label.empty()) {
    throw FileError(fmt::format("{}: the label is empty", place.text()));
  }
  const std::optional<float> number = to_number(label);
  if (!fixed_names_.empty()) {
    // Names made of numbers are written as we write numbers, so that "+1" is the class "1".
    const bool known = word_classes_.contains(std::string(label));
    // A model's names went through JSON, which has UTF-8 only.
    add_word(known                         ? std::string(label)
             : number && is_whole(*number) ? fmt::format("{}", *number)
                                           : utf8_text(label),
             place);
    return;
  }
  if (classes_.empty() && values_.empty()) {
    words_ = !number;
  }
  if (words_ && options_.target != TargetKind::values) {
    add_word(label, place);
    return;
  }
  if (!number) {
    throw FileError(
        fmt::format("{}: label '{}' is not a finite number, as the labels above it are", place.text(), quoted(label)));
  }
  if (options_.target == TargetKind::classes) {
    const bool sign = *number == -1;
    const float most = static_cast<float>(options_.classes > 0 ? options_.classes : kMostClasses) - 1;
    if (!is_whole(*number) || (*number < 0 && !sign) || *number > most) {
      throw FileError(
          fmt::format("{}: label {}: expected a class, a whole number from 0 to {}", place.text(), *number, most));
    }
  }
  values_.push_back(*number);
}

ArrayTargets LabelReader::finish(SampleSpec& spec, std::vector<std::string>& names, const std::string& file) {
  ArrayTargets targets;
  if (words_) {
    targets.classes = std::move(classes_);
    names = fixed_names_;
    if (names.empty()) {  // sorted by name, so that they do not depend on the order of the lines
      for (const auto& [word, index] : word_classes_) {
        names.push_back(word);
      }
      std::sort(names.begin(), names.end());
      std::vector<std::int32_t> rank(names.size());
      for (std::size_t i = 0; i < names.size(); ++i) {
        rank[static_cast<std::size_t>(word_classes_[names[i]])] = static_cast<std::int32_t>(i);
      }
      for (std::int32_t& index : targets.classes) {
        index = rank[static_cast<std::size_t>(index)];
      }
    }
    spec.classes = static_cast<std::int64_t>(names.size());
    return targets;
  }
  const auto [least, most] = std::minmax_element(values_.begin(), values_.end());
  const bool whole = std::all_of(values_.begin(), values_.end(), is_whole);
  const bool signs =
      std::all_of(values_.begin(), values_.end(), [](float v) { return v == -1 || v == 1; }) && *least < 0;
  const bool counts = whole && *least >= 0 && *most < static_cast<float>(kMostAutomaticClasses);
  if (options_.target == TargetKind::values || (options_.target == TargetKind::automatic && !signs && !counts)) {
    spec.targets = 1;
    targets.values = std::move(values_);
    return targets;
  }
  if (*least < 0 && !signs) {
    throw FileError(
        fmt::format("{}: labels of -1 together with others than 1: expected -1 and 1, or 0 and above", file));
  }
  for (const float value : values_) {
    targets.classes.push_back(static_cast<std::int32_t>(signs ? (value > 0 ? 1 : 0) : value));
  }
  if (signs) {
    names = {"-1", "1"};
  }
  const std::int64_t seen = signs ? 2 : static_cast<std::int64_t>(*most) + 1;
  if (options_.classes > 0 && seen > options_.classes) {
    throw FileError(fmt::format("{}: label {}: expected classes from 0 to {}", file, seen - 1, options_.classes - 1));
  }
  spec.classes = std::max(seen, options_.classes);
  if (static_cast<std::int64_t>(names.size()) != spec.classes) {
    names.clear();
  }
  return targets;
}

void for_each_line(const FileBytes& file,
                   const std::function<bool(std::string_view, std::size_t, std::size_t)>& visit) {
  const std::string_view text(file.text(), file.bytes.size());
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    if (!visit(line, ++number, at)) {
      return;
    }
    at = end + 1;
  }
}

std::shared_ptr<const Dataset> open_text_rows(const FileBytes& file, std::size_t first_line, bool sparse,
                                              LineParser parser, const TextOptions& options) {
  TextContents data;
  data.file = file;
  data.parser = std::move(parser);
  data.spec.sparse = sparse;
  LabelReader labels(options);
  std::int64_t features = options.like != nullptr ? options.like->spec().input.elements() : options.features;
  const bool fixed = features > 0;
  TextRow row;
  bool has_labels = options.labelled;
  for_each_line(file, [&](std::string_view line, std::size_t number, std::size_t offset) {
    if (number < first_line || trimmed(line).empty()) {
      return true;
    }
    const LinePlace place{file.name, number, offset};
    data.parser(line, place, row);
    const std::int64_t found = sparse ? (row.columns.empty() ? 0 : row.columns.back() + std::int64_t{1})
                                      : static_cast<std::int64_t>(row.values.size());
    if (fixed ? (sparse ? found > features : found != features) : (!sparse && features > 0 && found != features)) {
      throw FileError(fmt::format("{}: {} {}, expected {}{}", place.text(), sparse ? "feature" : "features:", found,
                                  sparse ? "at most " : "", features));
    }
    features = fixed ? features : std::max(features, found);
    if (has_labels) {
      labels.add(row.label, place);
    }
    data.lines.push_back(offset);
    if (data.stored) {
      data.rows.values.insert(data.rows.values.end(), row.values.begin(), row.values.end());
      data.rows.columns.insert(data.rows.columns.end(), row.columns.begin(), row.columns.end());
      if (sparse) {
        data.rows.offsets.push_back(static_cast<std::int64_t>(data.rows.columns.size()));
      }
      if ((data.rows.values.size() + data.rows.columns.size()) * sizeof(float) > options.memory_limit) {
        data.stored = false;
        data.rows = {};
      }
    }
    return true;
  });
  if (data.lines.empty()) {
    throw FileError(fmt::format("{}: holds no samples", file.name));
  }
  if (features == 0) {
    throw FileError(fmt::format("{}: no line has a feature", file.name));
  }
  data.spec.input = Shape{features};
  if (has_labels) {
    data.targets = labels.finish(data.spec, data.names, file.name);
  }
  return std::make_shared<TextDataset>(std::move(data));
}

}  // namespace distbelief
