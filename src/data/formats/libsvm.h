#pragma once

#include <memory>

#include "data/formats/text_rows.h"

namespace distbelief {

/// "LABEL INDEX:VALUE INDEX:VALUE ... # comment", one sample a line; indices count from 1 and rise. Labels -1 and 1
/// become the classes 0 and 1. Sparse. Throws FileError with FILE:LINE.
std::shared_ptr<const Dataset> open_libsvm(const FileBytes& file, const TextOptions& options);

}  // namespace distbelief
