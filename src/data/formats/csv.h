#pragma once

#include <memory>

#include "data/formats/text_rows.h"

namespace distbelief {

/// Numbers separated by commas, semicolons or tabs (what the first line shows), one sample a line, with or without a
/// line of names. The first line is taken for names when none of its fields is a number, or one is called "label",
/// "class", "target" or as options.label_column says. Fields may stand in double quotes, but not go over the end of a
/// line. Without labels wanted, a label column that is named is left out, as is one with class names of options.like in
/// words when there is one column too many; all other columns are features. Throws FileError with FILE:LINE.
std::shared_ptr<const Dataset> open_csv(const FileBytes& file, const TextOptions& options);

}  // namespace distbelief
