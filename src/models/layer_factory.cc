#include "models/layer_factory.h"

#include <array>

#include "base/check.h"
#include "base/error.h"
#include "graph/layers/activation.h"
#include "graph/layers/add.h"
#include "graph/layers/batch_norm.h"
#include "graph/layers/concat.h"
#include "graph/layers/conv2d.h"
#include "graph/layers/dense.h"
#include "graph/layers/dropout.h"
#include "graph/layers/embedding.h"
#include "graph/layers/factorization.h"
#include "graph/layers/l2_pool.h"
#include "graph/layers/layer_norm.h"
#include "graph/layers/local_contrast_norm.h"
#include "graph/layers/local_response_norm.h"
#include "graph/layers/locally_connected2d.h"
#include "graph/layers/pooling.h"
#include "graph/layers/relu.h"
#include "graph/layers/reshape.h"
#include "graph/layers/wait.h"
#include "models/name_hash.h"

namespace distbelief {
namespace {

/// Windows and neighbourhoods beyond this are a mistake; it keeps products of sizes within 64 bits.
constexpr std::int64_t kMaxWindow = std::int64_t{1} << 24;

/// kernel, stride, padding and dilation; `stride_is_kernel` for pooling, whose windows do not overlap unless told to.
Window read_window(LayerAttributes& attributes, bool dilation, bool stride_is_kernel) {
  Window window;
  window.kernel = attributes.required_extent("kernel", 1);
  if (window.kernel.height * window.kernel.width > kMaxWindow) {
    attributes.refuse("kernel", fmt::format("a window of at most {} elements", kMaxWindow));
  }
  window.stride = attributes.extent("stride", 1, stride_is_kernel ? window.kernel : Extent{1, 1});
  if (dilation) {
    window.dilation = attributes.extent("dilation", 1, {1, 1});
  }
  window.padding = attributes.padding("padding", window.kernel, window.dilation);
  return window;
}

LayerPtr make_dense_layer(LayerAttributes& attributes) {
  DenseOptions options;
  options.units = attributes.outputs("units");
  options.bias = attributes.flag("bias", true);
  const std::string init = attributes.word("init", {"he", "glorot", "small"}, "he");
  options.init = init == "he"       ? DenseOptions::Init::he
                 : init == "glorot" ? DenseOptions::Init::glorot
                                    : DenseOptions::Init::small;
  return std::make_shared<Dense>(options);
}

LayerPtr make_conv2d(LayerAttributes& attributes) {
  Conv2dOptions options;
  options.filters = attributes.outputs("filters");
  options.window = read_window(attributes, true, false);
  options.groups = attributes.integer("groups", 1, 1);
  options.bias = attributes.flag("bias", true);
  return std::make_shared<Conv2d>(options);
}

LayerPtr make_locally_connected2d(LayerAttributes& attributes) {
  LocallyConnected2dOptions options;
  options.filters = attributes.outputs("filters");
  options.window = read_window(attributes, false, false);
  options.bias = attributes.flag("bias", true);
  return std::make_shared<LocallyConnected2d>(options);
}

LayerPtr make_embedding(LayerAttributes& attributes) {
  EmbeddingOptions options;
  options.vocabulary = attributes.required_integer("vocabulary", 1);
  options.dimension = attributes.required_integer("dimension", 1);
  return std::make_shared<Embedding>(options);
}

LayerPtr make_factorization(LayerAttributes& attributes) {
  return std::make_shared<FactorizationMachine>(attributes.integer("factors", 1, 8));
}

LayerPtr make_max_pool_layer(LayerAttributes& attributes) {
  return std::make_shared<Pooling>(PoolingOptions{.window = read_window(attributes, false, true)});
}

LayerPtr make_average_pool(LayerAttributes& attributes) {
  PoolingOptions options;
  options.window = read_window(attributes, false, true);
  const bool include = attributes.flag("include_padding", false);
  options.kind = include ? PoolingOptions::Kind::average_with_padding : PoolingOptions::Kind::average;
  return std::make_shared<Pooling>(options);
}

LayerPtr make_l2_pool(LayerAttributes& attributes) {
  return std::make_shared<L2Pool>(read_window(attributes, false, true));
}

template <PoolingOptions::Kind kind>
LayerPtr make_global_pool(LayerAttributes& /*attributes*/) {
  return std::make_shared<Pooling>(PoolingOptions{.kind = kind, .window = {}, .global = true});
}

LayerPtr make_wait(LayerAttributes& attributes) {
  return std::make_shared<Wait>(attributes.number("microseconds", 0, 1e6F, 100));
}

LayerPtr make_batch_norm(LayerAttributes& attributes) {
  BatchNormOptions options;
  options.epsilon = attributes.number("epsilon", 1e-12F, 1, options.epsilon);
  options.momentum = attributes.number("momentum", 0, 1, options.momentum);
  options.zero_scale = attributes.flag("zero_scale", false);
  return std::make_shared<BatchNorm>(options);
}

LayerPtr make_layer_norm(LayerAttributes& attributes) {
  LayerNormOptions options;
  options.axes = static_cast<int>(attributes.integer("axes", 1, options.axes));
  options.epsilon = attributes.number("epsilon", 1e-12F, 1, options.epsilon);
  return std::make_shared<LayerNorm>(options);
}

LayerPtr make_local_response_norm(LayerAttributes& attributes) {
  LocalResponseNormOptions options;
  options.size = attributes.integer("size", 1, options.size);
  if (options.size > kMaxWindow) {
    attributes.refuse("size", fmt::format("at most {}", kMaxWindow));
  }
  options.alpha = attributes.number("alpha", 0, 1000, options.alpha);
  options.beta = attributes.number("beta", 0, 1000, options.beta);
  options.k = attributes.number("k", 1e-6F, 1000, options.k);
  return std::make_shared<LocalResponseNorm>(options);
}

LayerPtr make_local_contrast_norm(LayerAttributes& attributes) {
  LocalContrastNormOptions options;
  options.kernel = attributes.extent("kernel", 1, options.kernel);
  options.floor = attributes.number("floor", 1e-6F, 1000, options.floor);
  return std::make_shared<LocalContrastNorm>(options);
}

LayerPtr make_gelu(LayerAttributes& attributes) {
  const bool tanh = attributes.word("approximate", {"none", "tanh"}, "none") == "tanh";
  return std::make_shared<Activation>(tanh ? Activation::Kind::gelu_tanh : Activation::Kind::gelu);
}

template <Activation::Kind kind>
LayerPtr make_activation(LayerAttributes& /*attributes*/) {
  return std::make_shared<Activation>(kind);
}

template <typename PlainLayer>
LayerPtr make_plain(LayerAttributes& /*attributes*/) {
  return std::make_shared<PlainLayer>();
}

LayerPtr make_dropout(LayerAttributes& attributes) {
  DropoutOptions options;
  options.rate = attributes.number("rate", 0, 0.999F, options.rate);
  options.salt = name_hash(attributes.layer());
  return std::make_shared<Dropout>(options);
}

LayerPtr make_concat(LayerAttributes& attributes) {
  return std::make_shared<Concat>(static_cast<int>(attributes.integer("axis", 1, 1)));
}

LayerPtr make_flatten(LayerAttributes& /*attributes*/) { return Reshape::flatten(); }

LayerPtr make_reshape(LayerAttributes& attributes) {
  std::vector<std::int64_t> dims = attributes.integers("shape", -1, 5);
  double elements = 1;
  for (const std::int64_t dim : dims) {
    elements *= dim == -1 ? 1.0 : static_cast<double>(dim);
  }
  if (elements > 0x1p62) {
    attributes.refuse("shape", "a shape whose elements can be counted");
  }
  return std::make_shared<Reshape>(std::move(dims));
}

struct LayerType {
  std::string_view name;
  LayerPtr (*make)(LayerAttributes&);
};

/// The one list of layers; a new one is a line here.
constexpr auto kLayerTypes = std::to_array<LayerType>({
    {"add", make_plain<Add>},
    {"average_pool", make_average_pool},
    {"batch_norm", make_batch_norm},
    {"concat", make_concat},
    {"conv2d", make_conv2d},
    {"dense", make_dense_layer},
    {"dropout", make_dropout},
    {"embedding", make_embedding},
    {"factorization", make_factorization},
    {"flatten", make_flatten},
    {"gelu", make_gelu},
    {"global_average_pool", make_global_pool<PoolingOptions::Kind::average>},
    {"global_max_pool", make_global_pool<PoolingOptions::Kind::max>},
    {"l2_pool", make_l2_pool},
    {"layer_norm", make_layer_norm},
    {"local_contrast_norm", make_local_contrast_norm},
    {"local_response_norm", make_local_response_norm},
    {"locally_connected2d", make_locally_connected2d},
    {"max_pool", make_max_pool_layer},
    {"relu", make_plain<Relu>},
    {"reshape", make_reshape},
    {"sigmoid", make_activation<Activation::Kind::sigmoid>},
    {"softmax", make_plain<Softmax>},
    {"tanh", make_activation<Activation::Kind::tanh>},
    {"wait", make_wait},
});

}  // namespace

std::vector<std::string_view> layer_types() {
  std::vector<std::string_view> names;
  for (const LayerType& type : kLayerTypes) {
    names.push_back(type.name);
  }
  return names;
}

bool takes_several_inputs(std::string_view type) { return type == "add" || type == "concat"; }

LayerPtr make_layer(std::string_view type, LayerAttributes& attributes) {
  for (const LayerType& known : kLayerTypes) {
    if (known.name == type) {
      LayerPtr layer = known.make(attributes);
      attributes.expect_no_others(type);
      return layer;
    }
  }
  check(false, "make_layer() is asked for known types only");
  return nullptr;
}

}  // namespace distbelief
