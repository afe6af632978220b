#include "models/zoo.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/nearest_name.h"
#include "models/families/families.h"
#include "models/model_file.h"

namespace distbelief {
namespace {

std::vector<ModelFamily> families() {
  std::vector<ModelFamily> all;
  for (const auto& family :
       {linear_family, mlp_family, lenet_family, resnet_family, speech_family, local_image_family}) {
    for (ModelFamily& model : family()) {
      all.push_back(std::move(model));
    }
  }
  return all;
}

}  // namespace

bool is_model_file(const std::string& source) {
  return source.find('/') != std::string::npos || source.ends_with(".yaml") || source.ends_with(".yml");
}

std::vector<ModelInfo> known_models() {
  std::vector<ModelInfo> infos;
  for (ModelFamily& family : families()) {
    infos.push_back(std::move(family.info));
  }
  return infos;
}

Graph make_model(const ModelRequest& request) {
  if (is_model_file(request.source)) {
    if (!request.options.empty()) {
      throw InputError(fmt::format("model {}: no option '{}': a model file has its sizes in it", request.source,
                                   request.options.begin()->first));
    }
    return load_model_file(request.source, request.data);
  }
  const std::vector<ModelFamily> all = families();
  std::vector<std::string_view> names;
  for (const ModelFamily& family : all) {
    if (family.info.name == request.source) {
      const bool no_data = request.data.input.rank() == 0;
      return family.build(ModelOptions(family.info.name, family.info.options, request.options),
                          no_data ? family.info.default_data : request.data);
    }
    names.push_back(family.info.name);
  }
  throw InputError(fmt::format("no model is called '{}' (known: {}; a model file ends in .yaml){}", request.source,
                               fmt::join(names, ", "), did_you_mean(request.source, names)));
}

}  // namespace distbelief
