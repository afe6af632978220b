#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tensor/slice.h"

namespace distbelief {

class Layer;

/// How the work of a layer is shared out among processes that hold one network together. Channels are axis 1 of a
/// value, the features of rows included; rows of an image are axis 2.
enum class Cut : std::uint8_t {
  none,      ///< each does all of it, and has all of its parameters
  outputs,   ///< each reads the whole input and makes some channels of the output
  inputs,    ///< each reads some channels of the input and makes a part of every sum
  channels,  ///< each makes of some channels of the input the same channels of the output
  region,    ///< each makes some rows of the output image of those rows of the input that they need
};

/// As people read it: "by outputs".
const char* name_of(Cut cut);

/// Which part of a parameter of the whole layer a parameter of its part is.
struct ParameterPart {
  std::string name;  ///< within the layer
  int axis = -1;     ///< along which it is cut; -1: it is a copy of the whole
  Slice slice = {};
  /// A copy whose gradient is computed from a part of the input: those of all copies add up to the whole's.
  bool partial_gradient = false;
};

/// What one process does of a layer.
struct LayerPart {
  std::shared_ptr<const Layer> layer = nullptr;  ///< null: the layer itself does it
  std::vector<ParameterPart> parameters = {};    ///< of each parameter that the part has
};

/// Rows of an image that something needs. Those outside of the image are `fill`.
struct RowsNeeded {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  float fill = 0;
};

}  // namespace distbelief
