#include "transport/fabric_contract.h"

#include "transport/local/local_fabric.h"

namespace distbelief {
namespace {

TEST_P(FabricContract, Holds) {
  const auto& [factory, claim] = GetParam();
  run_ranks(factory(fabric_contract::kRanks), [&](std::unique_ptr<Fabric>& fabric) { claim.run(*fabric); });
}

DISTBELIEF_INSTANTIATE_FABRIC_CONTRACT(Local, make_local_fabrics)

}  // namespace
}  // namespace distbelief
