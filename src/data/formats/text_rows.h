#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/array_dataset.h"
#include "data/formats/file_bytes.h"
#include "data/open.h"

namespace distbelief {

// What CSV and LIBSVM have in common: one sample a line, a label in it, and files that may be larger than memory.

struct TextOptions {
  bool labelled = true;
  std::string label_column = {};
  TargetKind target = TargetKind::automatic;
  std::int64_t classes = 0;
  std::int64_t features = 0;
  std::uint64_t memory_limit = std::uint64_t{1} << 30;
  const Dataset* like = nullptr;  ///< the training part, whose features, classes and names a test part has
};

/// A line taken apart. `label` is empty when there is none.
struct TextRow {
  std::vector<float> values;
  std::vector<std::int32_t> columns;  ///< of sparse rows
  std::string label;
};

/// Where a line is, for messages: FILE:LINE, or the byte where it begins when only that is known.
struct LinePlace {
  const std::string& file;
  std::size_t line = 0;  ///< from 1; 0 when not known
  std::size_t offset = 0;
  std::string text() const;
};

/// Takes one line apart; reuses the memory of `row`. Thread-safe. Throws FileError beginning with the place.
using LineParser = std::function<void(std::string_view line, const LinePlace& place, TextRow& row)>;

/// The number that `text` is, the whole of it; nothing when it is none, or not finite as float.
std::optional<float> to_number(std::string_view text);
/// Throws FileError: "PLACE: column 3: expected a finite number, not 'x'"; `what` is "column" or "index".
[[noreturn]] void fail_number(std::string_view text, const LinePlace& place, std::string_view what, std::int64_t which);
/// Without blanks around it.
std::string_view trimmed(std::string_view text);

/// Turns labels into classes or values, as they come. The first label decides between words and numbers.
class LabelReader {
 public:
  explicit LabelReader(const TextOptions& options);
  void add(std::string_view label, const LinePlace& place);
  /// Decides what the labels are; sets spec.classes or spec.targets. Throws FileError that begins with `file`.
  ArrayTargets finish(SampleSpec& spec, std::vector<std::string>& names, const std::string& file);

 private:
  void add_word(std::string_view label, const LinePlace& place);

  TextOptions options_;
  std::vector<std::string> fixed_names_;
  bool words_ = false;
  std::unordered_map<std::string, std::int32_t> word_classes_;  // in the order of appearance, until finish()
  std::vector<std::int32_t> classes_;
  std::vector<float> values_;
};

/// The lines of `file` from line `first_line` on that are not empty. Every line is parsed once, so all errors come at
/// opening. The numbers stay in memory when they take no more than options.memory_limit, otherwise only where each line
/// begins does, and read() parses again. The spec's features come from the first line (dense) or the largest column.
std::shared_ptr<const Dataset> open_text_rows(const FileBytes& file, std::size_t first_line, bool sparse,
                                              LineParser parser, const TextOptions& options);

/// Calls `visit(line, number from 1, offset)` for each line, without its end ("\n" or "\r\n"), until it returns false.
void for_each_line(const FileBytes& file, const std::function<bool(std::string_view, std::size_t, std::size_t)>& visit);

}  // namespace distbelief
