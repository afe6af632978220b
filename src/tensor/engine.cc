#include "tensor/engine.h"

namespace distbelief {

dnnl::memory::desc plain_layout(const Shape& shape) {
  const dnnl::memory::dims dims(shape.dims().begin(), shape.dims().end());
  dnnl::memory::dims strides(dims.size());
  std::int64_t stride = 1;
  for (std::size_t i = dims.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<std::int64_t>(1, dims[i]);
  }
  return {dims, dnnl::memory::data_type::f32, strides};
}

}  // namespace distbelief
