#pragma once

#include <string_view>
#include <vector>

#include "graph/layer.h"
#include "models/layer_attributes.h"

namespace distbelief {

/// Every type of layer that model files know, sorted.
std::vector<std::string_view> layer_types();

/// True for layers that take any number of inputs and have no single one by nature: add, concat.
bool takes_several_inputs(std::string_view type);

/// The layer that these attributes describe. Throws InputError that names file, line, layer and key: an unknown key
/// (with the nearest one), a missing key, a value of another kind. `type` is one of layer_types().
LayerPtr make_layer(std::string_view type, LayerAttributes& attributes);

}  // namespace distbelief
