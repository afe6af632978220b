#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "base/random.h"
#include "exec/replica.h"
#include "exec/row_set.h"
#include "graph/layers/dense.h"
#include "graph/layers/embedding.h"
#include "graph/layers/factorization.h"
#include "graph/layers/relu.h"
#include "graph/layers/reshape.h"
#include "graph/losses/sigmoid_cross_entropy.h"
#include "graph/losses/softmax_cross_entropy.h"
#include "plan/parameter_layout.h"

namespace distbelief {
namespace {

constexpr std::int64_t kSparseColumns = 60;
constexpr float kGarbage = 12345;

Batch sparse_batch(std::int64_t rows) {
  const CounterRandom random(5, RandomUse::generate);
  Batch batch;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto row = static_cast<std::uint64_t>(r);
    batch.ids.push_back(row);
    batch.classes.push_back(static_cast<std::int32_t>(r % 2));
    for (std::int32_t column = static_cast<std::int32_t>(r % 3); column < kSparseColumns; column += 11) {
      batch.sparse.columns.push_back(column);
      batch.sparse.values.push_back(random.normal(row, static_cast<std::uint64_t>(column)));
    }
    batch.sparse.offsets.push_back(static_cast<std::int64_t>(batch.sparse.columns.size()));
  }
  return batch;
}

Graph sparse_network() {
  Graph graph("sparse");
  NodeId x = graph.add_input({kSparseColumns}, ValueKind::sparse);
  x = graph.add("first", std::make_shared<Dense>(DenseOptions{.units = 5}), {x});
  x = graph.add("relu", std::make_shared<Relu>(), {x});
  graph.add("last", std::make_shared<Dense>(DenseOptions{.units = 2}), {x});
  graph.finish(std::make_shared<SoftmaxCrossEntropy>());
  return graph;
}

Graph factorization() {
  Graph graph("factorization");
  const NodeId x = graph.add_input({kSparseColumns}, ValueKind::sparse);
  graph.add("output", std::make_shared<FactorizationMachine>(4), {x});
  graph.finish(std::make_shared<SigmoidCrossEntropy>());
  return graph;
}

Graph embedding() {
  Graph graph("embedding");
  NodeId x = graph.add_input({3}, ValueKind::indices);
  x = graph.add("words", std::make_shared<Embedding>(EmbeddingOptions{.vocabulary = 40, .dimension = 6}), {x});
  x = graph.add("flatten", Reshape::flatten(), {x});
  graph.add("last", std::make_shared<Dense>(DenseOptions{.units = 2}), {x});
  graph.finish(std::make_shared<SoftmaxCrossEntropy>());
  return graph;
}

Batch index_batch(std::int64_t rows) {
  Batch batch;
  for (std::int64_t r = 0; r < rows; ++r) {
    batch.ids.push_back(static_cast<std::uint64_t>(r));
    batch.classes.push_back(static_cast<std::int32_t>(r % 2));
    const auto first = static_cast<std::int32_t>(r % 5);
    batch.indices.insert(batch.indices.end(), {first, first + 20, first});
  }
  return batch;
}

/// Marks the places of a flat space that `touched` names, and those of all parameters without rows.
std::vector<bool> meant(const ParameterTable& table, std::span<const TouchedRows> touched) {
  std::vector<bool> marks(static_cast<std::size_t>(table.size()));
  const auto mark = [&](std::int64_t begin, std::int64_t count) { std::fill_n(marks.begin() + begin, count, true); };
  for (const ParameterEntry& entry : table.entries()) {
    if (entry.spec.row_floats == 0) {
      mark(entry.range.begin, entry.range.size());
    }
  }
  for (const TouchedRows& part : touched) {
    for (const std::int32_t row : part.rows) {
      mark(part.offset(row), part.row_floats());
    }
  }
  return marks;
}

/// Computes the same rows both ways, several times: with all rows, and with the touched ones in the midst of garbage.
void expect_equal_gradients(const Graph& graph, const Batch& batch, std::size_t parameters_with_rows) {
  const ParameterTable table = layout_parameters(graph);
  Replica whole(graph, table, {});
  table.initialize(1, whole.values());
  Replica sparse(graph, table, {.gradient_rows = GradientRows::touched});
  std::ranges::fill(sparse.gradient_memory(1)[0], kGarbage);

  for (const std::int64_t first : {0, 4, 2}) {
    constexpr std::int64_t kFewRows = 4;
    const std::span<const TouchedRows> touched = sparse.prepare(batch, first, kFewRows);
    ASSERT_EQ(touched.size(), parameters_with_rows);
    const std::vector<bool> marks = meant(table, touched);
    for (std::size_t i = 0; i < marks.size(); ++i) {  // what is not touched must not be read either
      sparse.values()[i] = marks[i] ? whole.values()[i] : std::numeric_limits<float>::quiet_NaN();
    }
    const std::vector<float> before(sparse.gradient_memory(1)[0].begin(), sparse.gradient_memory(1)[0].end());
    const LossSums sums = sparse.compute_prepared();

    Batch part;
    part.ids.assign(batch.ids.begin() + first, batch.ids.begin() + first + kFewRows);
    part.classes.assign(batch.classes.begin() + first, batch.classes.begin() + first + kFewRows);
    if (batch.indices.empty()) {
      const std::int64_t begin = batch.sparse.offsets[static_cast<std::size_t>(first)];
      for (std::int64_t row = 1; row <= kFewRows; ++row) {
        part.sparse.offsets.push_back(batch.sparse.offsets[static_cast<std::size_t>(first + row)] - begin);
      }
      part.sparse.columns.assign(batch.sparse.columns.begin() + begin,
                                 batch.sparse.columns.begin() + begin + part.sparse.offsets.back());
      part.sparse.values.assign(batch.sparse.values.begin() + begin,
                                batch.sparse.values.begin() + begin + part.sparse.offsets.back());
    } else {
      part.indices.assign(batch.indices.begin() + 3 * first, batch.indices.begin() + 3 * (first + kFewRows));
    }
    EXPECT_EQ(sums.loss, whole.compute_gradient(part).loss);
    std::size_t untouched = 0;
    for (std::size_t i = 0; i < marks.size(); ++i) {
      EXPECT_EQ(sparse.gradients()[0][i], marks[i] ? whole.gradients()[0][i] : before[i]) << "place " << i;
      untouched += marks[i] ? 0 : 1;
    }
    EXPECT_GT(untouched, 20U);
  }
}

TEST(TouchedRows, HaveTheGradientOfASparseDenseLayer) { expect_equal_gradients(sparse_network(), sparse_batch(8), 1); }

TEST(TouchedRows, HaveTheGradientOfAFactorizationMachine) {
  expect_equal_gradients(factorization(), sparse_batch(8), 2);
}

TEST(TouchedRows, HaveTheGradientOfAnEmbedding) { expect_equal_gradients(embedding(), index_batch(8), 1); }

TEST(TouchedRows, AreCheckedBeforeAnybodyReadsThem) {
  const Graph graph = embedding();
  const ParameterTable table = layout_parameters(graph);
  Replica replica(graph, table, {.gradient_rows = GradientRows::touched});
  Batch batch = index_batch(2);
  batch.indices[4] = 40;
  EXPECT_THROW((void)replica.prepare(batch, 0, 2), InputError);
}

TEST(RowSet, KeepsTheFirstOfEachRowAndForgetsTheLastBatch) {
  RowSet set(10);
  const auto distinct = [&](const std::vector<std::int32_t>& rows) {
    const std::span<const std::int32_t> found = set.distinct(rows);
    return std::vector<std::int32_t>(found.begin(), found.end());
  };
  EXPECT_EQ(distinct({3, 9, 3, 0, 9}), (std::vector<std::int32_t>{3, 9, 0}));
  EXPECT_EQ(distinct({9, 9}), (std::vector<std::int32_t>{9}));
  EXPECT_EQ(distinct({}), std::vector<std::int32_t>{});
}

}  // namespace
}  // namespace distbelief
