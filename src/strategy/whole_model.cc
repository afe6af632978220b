#include "strategy/whole_model.h"

#include "base/check.h"

namespace distbelief {

WholeUpdate apply_to_whole(ParameterShard& shard, const Replica& replica, std::uint64_t epoch,
                           std::span<const std::span<const float>> parts, std::int64_t rows,
                           const UpdateOptions& options) {
  shard.prune_leases(epoch);
  const PushId push{epoch, shard.next_seq(epoch)};
  const UpdateReport report = shard.apply(push, parts, 1.0F / static_cast<float>(rows), options, shard.version());
  if (report.result == ApplyResult::dropped) {
    const std::string name = replica.nonfinite_gradient();  // none: only the sum of its squares is too large
    return {false, name.empty() ? "the gradient's length" : "the gradient of '" + name + "'"};
  }
  check(report.result == ApplyResult::applied, "a push of one's own is neither late nor early");
  return {true, report.finite ? "" : "parameter '" + replica.nonfinite_parameter() + "'"};
}

}  // namespace distbelief
