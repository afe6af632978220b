#include "text_layout.h"

#include <algorithm>

namespace distbelief {

std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::string wrapped(std::string_view text, std::size_t indent, std::size_t width) {
  std::string out;
  while (true) {
    const std::string_view line = text.substr(0, text.find('\n'));
    std::size_t column = indent + std::min(line.find_first_not_of(' '), line.size());
    const std::string margin = '\n' + std::string(column, ' ');
    out.append(column - indent, ' ');
    bool first = true;
    for (std::size_t at = column - indent; at < line.size();) {
      const std::size_t end = std::min(line.find(' ', at), line.size());
      const std::string_view word = line.substr(at, end - at);
      if (!first && column + 1 + columns_of(word) > width) {
        out += margin;
        column = margin.size() - 1;
      } else if (!first) {
        out += ' ';
        ++column;
      }
      out += word;
      column += columns_of(word);
      first = false;
      at = end + 1;
    }
    if (line.size() == text.size()) {
      return out;
    }
    out += '\n' + std::string(indent, ' ');
    text.remove_prefix(line.size() + 1);
  }
}

namespace {

/// Lines that follow each other and are not indented become one.
std::string as_paragraphs(std::string_view text) {
  std::string joined;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool ends_line = text[at] == '\n' && at + 1 < text.size() && !joined.empty() && joined.back() != '\n';
    const std::size_t begin = joined.rfind('\n') + 1;  // of this line; npos + 1 is 0
    const bool is_text = begin < joined.size() && joined[begin] != ' ' && joined.back() != ':';
    joined += ends_line && is_text && text[at + 1] != '\n' && text[at + 1] != ' ' ? ' ' : text[at];
  }
  return joined;
}

}  // namespace

std::string wrapped_examples(std::string_view given, std::size_t width) {
  const std::string paragraphs = as_paragraphs(given);
  const std::string_view text = paragraphs;
  constexpr std::size_t kIndent = 2;
  constexpr std::string_view kBreak = " \\";
  std::string out;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    out += out.empty() ? "" : "\n";
    if (columns_of(line) <= width) {
      out += line;
      continue;
    }
    if (!line.starts_with(' ')) {
      out += wrapped(line, 0, width);
      continue;
    }
    const std::size_t gap = std::min(line.find("  ", line.find_first_not_of(' ')), line.size());
    const std::string_view remark = line.substr(std::min(line.find_first_not_of(' ', gap), line.size()));
    std::string command = wrapped(line.substr(0, gap), 0, width - kBreak.size() - kIndent);
    for (std::size_t at_break = 0; (at_break = command.find('\n', at_break)) != std::string::npos;) {
      command.replace(at_break, 1, std::string(kBreak) + '\n' + std::string(kIndent, ' '));
      at_break += kBreak.size() + 1 + kIndent;
    }
    out += command;
    out += remark.empty() ? "" : '\n' + wrapped(std::string(3 * kIndent, ' ').append(remark), 0, width);
  }
  return out;
}

std::string table_text(const std::vector<std::vector<std::string>>& rows, const std::vector<std::size_t>& right,
                       std::size_t width) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], columns_of(row[i]));
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    std::size_t column = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string fill(widths[i] - columns_of(row[i]), ' ');
      if (std::find(right.begin(), right.end(), i) != right.end()) {
        line += fill + row[i];
      } else if (i + 1 == widths.size()) {
        line += wrapped(row[i], column, std::max(width, column + 20));
      } else {
        line += row[i] + fill;
      }
      line += "  ";
      column += widths[i] + 2;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace distbelief
