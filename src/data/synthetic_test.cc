#include "data/synthetic.h"

#include <cmath>

#include "data/test_folder.h"

namespace distbelief {
namespace {

using testing::HasSubstr;

Batch read(const Dataset& data, std::uint64_t first, std::uint64_t count) {
  std::vector<std::uint64_t> ids;
  for (std::uint64_t i = 0; i < count; ++i) {
    ids.push_back(first + i);
  }
  Batch batch;
  data.read(ids, 0, batch);
  return batch;
}

TEST(Synthetic, OptionsAreRead) {
  const SyntheticOptions options = parse_synthetic("classes=4,shape=3x8x16,samples=50,seed=9");
  EXPECT_EQ(options.shape, (Shape{3, 8, 16}));
  EXPECT_EQ(options.samples, 50U);
  EXPECT_EQ(options.test, 10U);
  EXPECT_EQ(parse_synthetic("kind=random").shape, (Shape{3, 224, 224}));
  EXPECT_EQ(parse_synthetic("").classes, 10);
  EXPECT_EQ(make_synthetic(parse_synthetic("test=0")).test, nullptr);
}

TEST(Synthetic, WrongOptionsAreNamed) {
  const auto message = [](const char* text) { return error_of([&] { parse_synthetic(text); }); };
  EXPECT_THAT(message("clases=4"), HasSubstr("unknown key 'clases'"));
  EXPECT_THAT(message("classes=zero"), HasSubstr("classes=zero: expected a number from 1"));
  EXPECT_THAT(message("classes=0"), HasSubstr("classes=0"));
  EXPECT_THAT(message("shape=3x"), HasSubstr("shape="));
  EXPECT_THAT(message("shape=99999999x99999999x99999999"), HasSubstr("shape=99999999"));
  EXPECT_THAT(message("shape=99999999x99999999x99999"), HasSubstr("shape=99999999x99999999x99999: expected"));
  EXPECT_THAT(message("kind=images"), HasSubstr("expected classes, random"));
  EXPECT_THAT(message("samples"), HasSubstr("expected key=value"));
}

TEST(Synthetic, TheSameSeedGivesTheSameSamples) {
  const auto a = make_synthetic(parse_synthetic("seed=3"));
  const auto b = make_synthetic(parse_synthetic("seed=3"));
  const auto c = make_synthetic(parse_synthetic("seed=4"));
  EXPECT_EQ(read(*a.train, 10, 4).dense, read(*b.train, 10, 4).dense);
  EXPECT_NE(read(*a.train, 10, 4).dense, read(*c.train, 10, 4).dense);
  EXPECT_NE(read(*a.train, 0, 4).dense, read(*a.test, 0, 4).dense);
}

// The nearest class mean of the training part names the class of nearly every test sample.
TEST(Synthetic, ClassesCanBeLearned) {
  for (const char* text :
       {"classes=5,shape=2x9x11,samples=200", "classes=5,shape=30,samples=200", "classes=5,shape=8x8"}) {
    const auto splits = make_synthetic(parse_synthetic(text));
    const std::size_t elements = static_cast<std::size_t>(splits.train->spec().input.elements());
    std::vector<std::vector<float>> means(5, std::vector<float>(elements));
    const Batch train = read(*splits.train, 0, 200);
    for (std::size_t i = 0; i < 200; ++i) {
      for (std::size_t k = 0; k < elements; ++k) {
        means[static_cast<std::size_t>(train.classes[i])][k] += train.dense[i * elements + k] / 40;
      }
    }
    const Batch test = read(*splits.test, 0, 40);
    int right = 0;
    for (std::size_t i = 0; i < 40; ++i) {
      std::size_t best = 0;
      double best_distance = 1e30;
      for (std::size_t c = 0; c < 5; ++c) {
        double distance = 0;
        for (std::size_t k = 0; k < elements; ++k) {
          distance += std::pow(means[c][k] - test.dense[i * elements + k], 2);
        }
        if (distance < best_distance) {
          best_distance = distance;
          best = c;
        }
      }
      right += static_cast<int>(best) == test.classes[i] ? 1 : 0;
    }
    EXPECT_GE(right, 38) << text;
  }
}

TEST(Synthetic, SparseRowsAreValid) {
  const auto splits = make_synthetic(parse_synthetic("kind=sparse,shape=500,nonzeros=10,classes=3"));
  EXPECT_TRUE(splits.train->spec().sparse);
  const Batch batch = read(*splits.train, 5, 20);
  ASSERT_EQ(batch.sparse.offsets.size(), 21U);
  EXPECT_EQ(batch.sparse.columns.size(), batch.sparse.values.size());
  for (std::size_t row = 0; row < 20; ++row) {
    for (std::int64_t at = batch.sparse.offsets[row]; at < batch.sparse.offsets[row + 1]; ++at) {
      const auto place = static_cast<std::size_t>(at);
      EXPECT_LT(batch.sparse.columns[place], 500);
      if (at > batch.sparse.offsets[row]) {
        EXPECT_GT(batch.sparse.columns[place], batch.sparse.columns[place - 1]);
      }
    }
  }
}

TEST(Synthetic, RegressionAndIndicesFillTheirVectors) {
  const auto regression = make_synthetic(parse_synthetic("kind=regression,targets=2"));
  const Batch values = read(*regression.train, 0, 200);
  EXPECT_EQ(values.targets.size(), 400U);
  double squares = 0;
  for (const float target : values.targets) {
    squares += target * target;
  }
  EXPECT_NEAR(squares / 400, 1.0, 0.5);
  const auto indices = make_synthetic(parse_synthetic("kind=indices,shape=7,vocabulary=50"));
  const Batch rows = read(*indices.train, 0, 30);
  ASSERT_EQ(rows.indices.size(), 210U);
  for (const std::int32_t index : rows.indices) {
    EXPECT_GE(index, 0);
    EXPECT_LT(index, 50);
  }
}

TEST(Synthetic, ASampleDoesNotDependOnWhatItIsReadWith) {
  for (const char* kind : {"classes", "random", "regression", "sparse", "indices"}) {
    const auto data = make_synthetic(parse_synthetic(std::string("shape=40,samples=9,classes=3,kind=") + kind)).train;
    Batch alone, last;
    data->read(std::vector<std::uint64_t>{7}, 0, alone);
    data->read(std::vector<std::uint64_t>{2, 5, 7}, 0, last);
    const auto ends_with = [](const auto& whole, const auto& end) {
      return whole.size() >= end.size() && std::equal(end.rbegin(), end.rend(), whole.rbegin());
    };
    EXPECT_TRUE(ends_with(last.dense, alone.dense)) << kind;
    EXPECT_TRUE(ends_with(last.indices, alone.indices)) << kind;
    EXPECT_TRUE(ends_with(last.sparse.columns, alone.sparse.columns)) << kind;
    EXPECT_TRUE(ends_with(last.sparse.values, alone.sparse.values)) << kind;
    EXPECT_TRUE(ends_with(last.targets, alone.targets)) << kind;
  }
}

}  // namespace
}  // namespace distbelief
