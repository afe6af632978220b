#pragma once

#include <dnnl.hpp>

#include "tensor/shape.h"

namespace distbelief {

/// The device that kernels run on, with the one in-order stream of whoever owns this object. One thread at a time.
class Engine {
 public:
  Engine() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}
  const dnnl::engine& engine() const { return engine_; }
  dnnl::stream& stream() const { return stream_; }

 private:
  dnnl::engine engine_;
  mutable dnnl::stream stream_;
};

/// Floats in row-major order: how parameters, inputs and predictions are held.
dnnl::memory::desc plain_layout(const Shape& shape);

/// `desc` over memory that the caller keeps alive.
inline dnnl::memory bind_memory(const Engine& engine, const dnnl::memory::desc& desc, const void* data) {
  return dnnl::memory(desc, engine.engine(), const_cast<void*>(data));
}

}  // namespace distbelief
