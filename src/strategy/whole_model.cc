#include "strategy/whole_model.h"

#include <cmath>

#include "base/check.h"
#include "params/gradient_norm.h"

namespace distbelief {

double clipping_factor(const Replica& replica, std::span<const std::span<const float>> parts, double scale,
                       double most) {
  PartLinks& links = *replica.options().links;
  double squares = 0;
  for (const ParameterEntry& entry : replica.table().entries()) {
    if (!entry.frozen && entry.spec.kind == ParameterKind::optimized &&
        (entry.spec.part_axis >= 0 || links.position() == 0)) {
      squares += gradient_squares(entry, parts);
    }
  }
  const double norm = scale * std::sqrt(links.sum_of_all(squares));
  return norm > most ? most / norm : 1;
}

PreparedUpdate prepare_update(const Replica& replica, std::span<const std::span<const float>> parts, std::int64_t rows,
                              const UpdateOptions& given) {
  PreparedUpdate prepared = {.scale = 1.0F / static_cast<float>(rows), .options = given};
  if (given.clip_norm > 0 && replica.options().links != nullptr) {
    prepared.scale *= static_cast<float>(clipping_factor(replica, parts, prepared.scale, given.clip_norm));
    prepared.options.clip_norm = 0;
    prepared.options.drop_nonfinite = true;
  }
  return prepared;
}

WholeUpdate apply_to_whole(ParameterShard& shard, const Replica& replica, std::uint64_t epoch,
                           std::span<const std::span<const float>> parts, std::int64_t rows,
                           const UpdateOptions& given) {
  return apply_prepared(shard, replica, epoch, parts, prepare_update(replica, parts, rows, given));
}

WholeUpdate apply_prepared(ParameterShard& shard, const Replica& replica, std::uint64_t epoch,
                           std::span<const std::span<const float>> parts, const PreparedUpdate& prepared) {
  shard.prune_leases(epoch);
  const PushId push{epoch, shard.next_seq(epoch)};
  const UpdateReport report = shard.apply(push, parts, prepared.scale, prepared.options, shard.version());
  if (report.result == ApplyResult::dropped) {
    const std::string name = replica.nonfinite_gradient();  // none: only the sum of its squares is too large
    return {false, name.empty() ? "the gradient's length" : "the gradient of '" + name + "'"};
  }
  check(report.result == ApplyResult::applied, "a push of one's own is neither late nor early");
  return {true, report.finite ? "" : "parameter '" + replica.nonfinite_parameter() + "'"};
}

}  // namespace distbelief
