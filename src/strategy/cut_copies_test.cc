// Copies of a network that is cut: sums over copies go on beside the exchanges of the parts.
#include <gtest/gtest.h>

#include "plan/partition.h"
#include "strategy/test_member.h"
#include "transport/locked/locked_fabric.h"

namespace distbelief {
namespace {

constexpr int kCopies = 2;
constexpr int kStages = 2;
constexpr int kCopySteps = 20;

/// Losses of what one of kCopies × kStages processes trains.
std::vector<double> train_part(Fabric& fabric, std::int64_t micro_batches) {
  const int copy = fabric.rank().value / kStages;
  const int stage = fabric.rank().value % kStages;
  const Graph graph = test_network(false);
  const ParameterTable table = layout_parameters(graph);
  Partition partition = uncut(graph);
  partition.stages = kStages;
  partition.stage.back() = 1;
  const NetworkPart part = part_of(graph, table, partition, stage, 0);
  std::vector<Rank> parts, copies;
  for (int i = 0; i < kStages; ++i) {
    parts.push_back(Rank{copy * kStages + i});
  }
  for (int i = 0; i < kCopies; ++i) {
    copies.push_back(Rank{i * kStages + stage});
  }
  PartLinks links(fabric, {.members = parts, .epoch = 8});
  Replica replica(part.graph, part.table, {.seed = 1, .micro_batches = micro_batches, .links = &links});
  part.table.initialize(copy == 0 ? 1 : 99, replica.values());
  const std::unique_ptr<UpdateRule> rule = make_rule({.name = "momentum"});
  Group column(fabric, copies, 16);
  AllReduce strategy(replica, *rule, column, {.most_rows = kBatch});
  TestSamples samples(kBatch, copy, kCopies);
  EXPECT_EQ(strategy.join().outcome, StepReport::Outcome::stepped);
  std::vector<double> losses;
  while (std::ssize(losses) < kCopySteps) {
    const StepReport report = strategy.step(samples, {.update = {.rate = 0.1F, .weight_decay = 0.001F}});
    if (report.outcome != StepReport::Outcome::end_of_epoch) {
      EXPECT_EQ(report.outcome, StepReport::Outcome::stepped) << report.culprit;
      losses.push_back(report.sums.loss / static_cast<double>(report.sums.rows));
    }
  }
  return losses;
}

TEST(CutCopies, HaveTheLossesOfOneProcess) {
  TestMember whole({});
  const std::vector<double> wanted = whole.train(kCopySteps);
  for (const std::int64_t micro_batches : {1, 3}) {
    std::vector<std::unique_ptr<Fabric>> fabrics = make_local_fabrics(kCopies * kStages);
    std::vector<std::vector<double>> losses(fabrics.size());
    {
      std::vector<std::jthread> threads;
      for (std::size_t rank = 0; rank < fabrics.size(); ++rank) {
        threads.emplace_back([&, rank] {
          LockedFabric fabric(std::move(fabrics[rank]));
          losses[rank] = train_part(fabric, micro_batches);
        });
      }
    }
    for (const std::vector<double>& found : losses) {
      ASSERT_EQ(found.size(), wanted.size());
      for (std::size_t step = 0; step < wanted.size(); ++step) {
        EXPECT_NEAR(found[step], wanted[step], 1e-4 * wanted[step]) << "step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace distbelief
