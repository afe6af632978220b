#include "exec/part_arena.h"

#include "exec/program.h"

namespace distbelief {

std::int64_t compiled_arena_bytes(const NetworkPart& part, std::int64_t rows) {
  return static_cast<std::int64_t>(Program(part.graph, part.table, rows, Purpose::training).arena_bytes());
}

}  // namespace distbelief
