#include "graph/layers/reordering.h"

namespace distbelief {

Reordering::Reordering(const Engine& engine, const dnnl::memory::desc& from, const dnnl::memory::desc& to)
    : needed_(from != to), from_(from), to_(to) {
  if (needed_) {
    primitive_ = dnnl::reorder(dnnl::reorder::primitive_desc(engine.engine(), from, engine.engine(), to));
  }
}

void Reordering::bind(const Engine& engine, const void* from, void* to) {
  if (needed_) {
    source_ = bind_memory(engine, from_, from);
    destination_ = bind_memory(engine, to_, to);
  }
}

void Reordering::run(const Engine& engine) {
  if (needed_) {
    primitive_.execute(engine.stream(), source_, destination_);
  }
}

}  // namespace distbelief
