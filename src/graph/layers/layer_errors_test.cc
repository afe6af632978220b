#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/layer_run.h"
#include "graph/layers/activation.h"
#include "graph/layers/add.h"
#include "graph/layers/concat.h"
#include "graph/layers/embedding.h"
#include "graph/layers/factorization.h"
#include "graph/layers/l2_pool.h"
#include "graph/layers/layer_norm.h"
#include "graph/layers/local_contrast_norm.h"
#include "graph/layers/local_response_norm.h"
#include "graph/layers/locally_connected2d.h"

namespace distbelief {
namespace {

std::string message(const Layer& layer, std::vector<ValueSpec> inputs) {
  try {
    layer.output(inputs);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

ValueSpec dense(const Shape& shape) { return {shape, ValueKind::dense}; }

TEST(LayerErrors, NameWhatWasExpectedAndWhatCame) {
  using testing::HasSubstr;
  EXPECT_THAT(message(Concat(1), {dense({2, 3, 4}), dense({2, 3, 5})}), HasSubstr("2x3x4 and 2x3x5"));
  EXPECT_THAT(message(Concat(3), {dense({2, 3, 4})}), HasSubstr("axis 3"));
  EXPECT_THAT(message(Add(), {dense({2, 3}), dense({2, 4})}), HasSubstr("2x3 and 2x4"));
  EXPECT_THAT(message(Embedding({.vocabulary = 3, .dimension = 2}), {dense({2, 3})}), HasSubstr("floats of 2x3"));
  EXPECT_THAT(message(Embedding({.vocabulary = 0, .dimension = 2}), {{{2, 3}, ValueKind::indices}}),
              HasSubstr("vocabulary"));
  EXPECT_THAT(message(FactorizationMachine(4), {dense({2, 3, 3})}), HasSubstr("2x3x3"));
  EXPECT_THAT(message(L2Pool({.kernel = {9, 9}}), {dense({1, 1, 4, 4})}), HasSubstr("does not fit"));
  EXPECT_THAT(message(LayerNorm({.axes = 2}), {dense({2, 3})}), HasSubstr("2 axes"));
  EXPECT_THAT(message(LocalContrastNorm(), {dense({2, 3})}), HasSubstr("images"));
  EXPECT_THAT(message(LocalResponseNorm(), {dense({2, 3})}), HasSubstr("images"));
  EXPECT_THAT(message(LocallyConnected2d({.filters = 0, .window = {}}), {dense({1, 1, 4, 4})}), HasSubstr("filters"));
  EXPECT_THAT(message(Softmax(), {dense({4})}), HasSubstr("rows"));
  EXPECT_THROW(LocalContrastNorm({.kernel = {4, 3}}), InputError);
  EXPECT_THROW(LocalResponseNorm({.size = 0}), InputError);
}

TEST(Embedding, NamesAnIndexOutsideTheVocabulary) {
  LayerRun run(Embedding({.vocabulary = 3, .dimension = 2}), {{{1, 2}, ValueKind::indices}}, {});
  for (const std::int32_t wrong : {3, -1}) {
    run.indices = {0, wrong};
    try {
      run.forward();
      ADD_FAILURE() << "no error";
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("index " + std::to_string(wrong)));
    }
  }
}

TEST(L2Pool, GradientOfZerosIsZero) {
  LayerRun run(L2Pool({.kernel = {2, 2}}), {dense({1, 1, 2, 2})}, {});
  run.inputs[0] = {0, 0, 0, 0};
  run.forward();
  run.backward(std::vector<float>{1.0F});
  EXPECT_EQ(run.input_gradients[0], (std::vector<float>{0, 0, 0, 0}));
}

}  // namespace
}  // namespace distbelief
