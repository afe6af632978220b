#include "strategy/whole_model.h"

#include <cmath>

#include "base/check.h"
#include "params/gradient_norm.h"

namespace distbelief {

namespace {

/// The factor that shrinks a gradient, of which this process has a part, to the length that it may have. Parameters of
/// which several processes have copies count once.
double clipping_factor(const Replica& replica, std::span<const std::span<const float>> parts, double scale, double most) {
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

}  // namespace

WholeUpdate apply_to_whole(ParameterShard& shard, const Replica& replica, std::uint64_t epoch,
                           std::span<const std::span<const float>> parts, std::int64_t rows,
                           const UpdateOptions& given) {
  shard.prune_leases(epoch);
  float scale = 1.0F / static_cast<float>(rows);
  UpdateOptions options = given;
  if (options.clip_norm > 0 && replica.options().links != nullptr) {
    scale *= static_cast<float>(clipping_factor(replica, parts, scale, options.clip_norm));
    options.clip_norm = 0;
    options.drop_nonfinite = true;
  }
  const PushId push{epoch, shard.next_seq(epoch)};
  const UpdateReport report = shard.apply(push, parts, scale, options, shard.version());
  if (report.result == ApplyResult::dropped) {
    const std::string name = replica.nonfinite_gradient();  // none: only the sum of its squares is too large
    return {false, name.empty() ? "the gradient's length" : "the gradient of '" + name + "'"};
  }
  check(report.result == ApplyResult::applied, "a push of one's own is neither late nor early");
  return {true, report.finite ? "" : "parameter '" + replica.nonfinite_parameter() + "'"};
}

}  // namespace distbelief
