#include "data/formats/csv.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/error.h"
#include "base/utf8_text.h"

namespace distbelief {
namespace {

/// With one quote where two stand for one.
std::string single_quotes(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    out += text[at];
    at += text[at] == '"' ? 1 : 0;
  }
  return out;
}

/// Calls field(text, index) for each field of a line, whose text lives until field() returns. Quotes are taken off, and
/// doubled ones inside made single.
template <typename Field>
std::size_t for_each_field(std::string_view line, char separator, const LinePlace& place, Field&& field) {
  std::size_t index = 0;
  for (std::size_t at = 0; at <= line.size(); ++index) {
    std::size_t begin = line.find_first_not_of(' ', at);
    if (begin != std::string_view::npos && line[begin] == '"') {
      std::size_t end = begin + 1;
      while ((end = line.find('"', end)) != std::string_view::npos && end + 1 < line.size() && line[end + 1] == '"') {
        end += 2;
      }
      if (end == std::string_view::npos) {
        throw FileError(fmt::format("{}: column {}: the quote is not closed on this line", place.text(), index + 1));
      }
      const std::size_t next = std::min(line.find(separator, end + 1), line.size());
      if (!trimmed(line.substr(end + 1, next - end - 1)).empty()) {
        throw FileError(
            fmt::format("{}: column {}: expected '{}' after the closing quote", place.text(), index + 1, separator));
      }
      const std::string_view inside = line.substr(begin + 1, end - begin - 1);
      if (inside.find('"') == std::string_view::npos) {
        field(trimmed(inside), index);
      } else {
        const std::string text = single_quotes(inside);
        field(trimmed(text), index);
      }
      at = next + 1;
      continue;
    }
    const std::size_t next = std::min(line.find(separator, at), line.size());
    field(trimmed(line.substr(at, next - at)), index);
    at = next + 1;
  }
  return index;
}

char find_separator(std::string_view line) {
  for (const char separator : {',', ';', '\t'}) {
    if (line.find(separator) != std::string_view::npos) {
      return separator;
    }
  }
  return ',';
}

/// Also of numbers that are too large, or not finite: they are no names.
bool is_number(std::string_view text) {
  double value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return !text.empty() && result.ptr == text.data() + text.size();
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

constexpr std::size_t kNone = ~std::size_t{0};

struct Columns {
  char separator = ',';
  std::size_t count = 0;
  std::size_t label = kNone;
  std::size_t first_line = 1;  // of the samples
};

std::size_t find_label(const std::vector<std::string>& names, bool header, const TextOptions& options,
                       const LinePlace& place) {
  if (!options.label_column.empty()) {
    const auto found = std::find(names.begin(), names.end(), options.label_column);
    if (header && found != names.end()) {
      return static_cast<std::size_t>(found - names.begin());
    }
    std::size_t number = 0;
    const std::string& text = options.label_column;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
    if (result.ec != std::errc{} || result.ptr != text.data() + text.size() || number < 1 || number > names.size()) {
      throw FileError(fmt::format("{}: no column '{}' for the label: expected {}a number from 1 to {}", place.text(),
                                  text, header ? "a name of this line or " : "", names.size()));
    }
    return number - 1;
  }
  for (std::size_t i = 0; header && i < names.size(); ++i) {
    const std::string name = lower(names[i]);
    if (name == "label" || name == "class" || name == "target") {
      return i;
    }
  }
  return options.labelled ? names.size() - 1 : kNone;
}

/// A table for prediction that has one column more than the model takes: its labels are there, too. Which column they
/// are shows where it holds the name of a class in words; otherwise the user must say.
std::size_t find_extra_label(const FileBytes& file, const Columns& columns, const std::vector<std::string>& names,
                             const Dataset& like) {
  const std::vector<std::string> classes = like.class_names();
  const auto is_class = [&](std::string_view text) {
    return std::ranges::find(classes, text) != classes.end() ||
           std::ranges::find(classes, utf8_text(text)) != classes.end();
  };
  std::size_t label = kNone;
  for_each_line(file, [&](std::string_view line, std::size_t number, std::size_t offset) {
    if (number < columns.first_line || trimmed(line).empty()) {
      return true;
    }
    std::size_t candidates = 0;
    for_each_field(line, columns.separator, {file.name, number, offset}, [&](std::string_view text, std::size_t index) {
      if (!is_number(text) && is_class(text)) {
        label = index;
        ++candidates;
      }
    });
    label = candidates == 1 ? label : kNone;
    return false;
  });
  if (label == kNone) {
    throw FileError(fmt::format(
        "{}: {} columns, but the model takes {}: say which column is the label, as in --label-column {}", file.name,
        columns.count, columns.count - 1, columns.first_line > 1 ? names.back() : std::to_string(columns.count)));
  }
  return label;
}

Columns find_columns(const FileBytes& file, const TextOptions& options) {
  Columns columns;
  std::vector<std::string> names;
  for_each_line(file, [&](std::string_view line, std::size_t number, std::size_t offset) {
    if (number == 1 && line.starts_with("\xEF\xBB\xBF")) {
      line.remove_prefix(3);
    }
    if (trimmed(line).empty()) {
      return true;
    }
    const LinePlace place{file.name, number, offset};
    columns.separator = find_separator(line);
    for_each_field(line, columns.separator, place,
                   [&](std::string_view text, std::size_t) { names.emplace_back(text); });
    const bool header = std::none_of(names.begin(), names.end(), is_number) ||
                        std::any_of(names.begin(), names.end(), [&](const std::string& name) {
                          const std::string word = lower(name);
                          return word == "label" || word == "class" || word == "target" ||
                                 (!is_number(name) && name == options.label_column);
                        });
    columns.count = names.size();
    columns.label = find_label(names, header, options, place);
    columns.first_line = header ? number + 1 : number;
    if (columns.count == 1 && columns.label != kNone) {
      throw FileError(fmt::format("{}: one column only: expected features and a label", place.text()));
    }
    return false;
  });
  if (columns.label == kNone && options.like != nullptr &&
      static_cast<std::int64_t>(columns.count) == options.like->spec().input.elements() + 1) {
    columns.label = find_extra_label(file, columns, names, *options.like);
  }
  return columns;
}

}  // namespace

std::shared_ptr<const Dataset> open_csv(const FileBytes& file, const TextOptions& options) {
  const Columns columns = find_columns(file, options);
  const auto parser = [columns](std::string_view line, const LinePlace& place, TextRow& row) {
    if (line.starts_with("\xEF\xBB\xBF")) {
      line.remove_prefix(3);
    }
    row.values.clear();
    row.label.clear();
    const std::size_t count =
        for_each_field(line, columns.separator, place, [&](std::string_view text, std::size_t index) {
          if (index == columns.label) {
            row.label = text;
          } else if (index < columns.count) {
            const std::optional<float> value = to_number(text);
            if (!value) {
              fail_number(text, place, "column", static_cast<std::int64_t>(index + 1));
            }
            row.values.push_back(*value);
          }
        });
    if (count != columns.count) {
      throw FileError(fmt::format("{}: {} columns, expected {}", place.text(), count, columns.count));
    }
  };
  return open_text_rows(file, columns.first_line, false, parser, options);
}

}  // namespace distbelief
