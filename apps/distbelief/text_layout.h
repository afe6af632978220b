#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace distbelief {

/// Breaks a text at spaces so that no line is longer than `width`, a word that is longer aside. Line breaks in it stay.
/// All lines but the first begin with `indent` spaces; the first is taken to begin at column `indent` already.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t width);

/// The same for text in paragraphs, whose line breaks do not stay, with examples, which are its indented lines: what
/// does not fit becomes a command over several lines, as a shell takes it, and what follows a command after two or more
/// spaces comes below it.
std::string wrapped_examples(std::string_view text, std::size_t width);

/// How many columns a text takes on a terminal, for UTF-8 of single width.
std::size_t columns_of(std::string_view text);

/// Rows of cells in columns two spaces apart; the first row is the heading. Columns named in `right` are aligned to the
/// right. The last column, if it is aligned to the left, is wrapped at `width`. Ends with a newline.
std::string table_text(const std::vector<std::vector<std::string>>& rows, const std::vector<std::size_t>& right,
                       std::size_t width);

}  // namespace distbelief
