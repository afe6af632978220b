#include "data/decorators.h"

#include <algorithm>

#include "data/array_dataset.h"
#include "data/test_folder.h"
#include "data/test_read.h"

namespace distbelief {
namespace {

/// Bytes that count up, as images of this shape; the class is the sample's number modulo 3.
std::shared_ptr<const Dataset> counting(std::uint64_t samples, const Shape& shape) {
  ArrayDataset::Contents contents;
  contents.spec.input = shape;
  contents.spec.classes = 3;
  const std::size_t elements = static_cast<std::size_t>(shape.elements());
  const auto bytes = std::make_shared<std::vector<std::byte>>(samples * elements);
  for (std::size_t i = 0; i < bytes->size(); ++i) {
    (*bytes)[i] = static_cast<std::byte>(i);
  }
  contents.blocks.push_back({bytes, bytes->data(), elements, samples});
  for (std::uint64_t i = 0; i < samples; ++i) {
    contents.targets.classes.push_back(static_cast<std::int32_t>(i % 3));
  }
  return std::make_shared<ArrayDataset>(std::move(contents));
}

TEST(Subset, ValidationSplitIsExactAndDisjoint) {
  const auto data = counting(101, Shape{1, 1, 2});
  const ValidationSplit split = split_validation(data, 0.1, 5);
  EXPECT_EQ(split.validation->size(), 10U);
  EXPECT_EQ(split.train->size(), 91U);
  std::vector<std::string> names;
  for (const auto& part : {split.train, split.validation}) {
    for (std::uint64_t i = 0; i < part->size(); ++i) {
      names.push_back(part->sample_name(i));
    }
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::unique(names.begin(), names.end()) - names.begin(), 101);
  EXPECT_NE(split.train->sample_name(0), split_validation(data, 0.1, 6).train->sample_name(0));
  const Batch batch = read_samples(*split.validation, {3});
  EXPECT_EQ(batch.ids[0], 3U) << "a subset has its own numbers";
  EXPECT_EQ(batch.classes[0], std::stoi(split.validation->sample_name(3)) % 3);
}

TEST(Subset, RefusesAnEmptyPart) {
  EXPECT_THROW(split_validation(counting(3, Shape{1}), 0.01, 1), InputError);
  EXPECT_THROW(split_validation(counting(3, Shape{1}), 1.0, 1), InputError);
  EXPECT_THROW(split_validation(counting(3, Shape{1}), -1, 1), InputError);
}

TEST(Augmented, IsAFunctionOfSeedEpochAndSample) {
  const Augmented data(counting(20, Shape{2, 4, 5}), {.crop_padding = 2, .flip = true}, 9);
  const Batch once = read_samples(data, {4, 7}, 3);
  const Batch again = read_samples(data, {7, 4}, 3);
  EXPECT_TRUE(std::equal(once.dense.begin(), once.dense.begin() + 40, again.dense.begin() + 40));
  bool differs = false;
  for (std::uint64_t epoch = 4; epoch < 8; ++epoch) {
    differs |= read_samples(data, {4, 7}, epoch).dense != once.dense;
  }
  EXPECT_TRUE(differs);
}

TEST(Augmented, ShiftsAndMirrorsAndFillsWithZero) {
  const Shape shape{1, 3, 4};
  const auto base = counting(1, shape);
  const std::vector<float> image = read_samples(*base, {0}).dense;
  const Augmented data(base, {.crop_padding = 1, .flip = true}, 2);
  std::vector<int> seen(18);
  for (std::uint64_t epoch = 0; epoch < 200; ++epoch) {
    const std::vector<float> got = read_samples(data, {0}, epoch).dense;
    int matches = 0;
    for (int kind = 0; kind < 18; ++kind) {
      const int down = kind / 2 / 3 - 1;
      const int right = kind / 2 % 3 - 1;
      std::vector<float> expected(12);
      for (int y = 0; y < 3; ++y) {
        for (int x = 0; x < 4; ++x) {
          const int from_y = y + down;
          const int from_x = x + right;
          if (from_y >= 0 && from_y < 3 && from_x >= 0 && from_x < 4) {
            expected[static_cast<std::size_t>(y * 4 + (kind % 2 == 1 ? 3 - x : x))] =
                image[static_cast<std::size_t>(from_y * 4 + from_x)];
          }
        }
      }
      if (got == expected) {
        ++matches;
        ++seen[static_cast<std::size_t>(kind)];
      }
    }
    EXPECT_EQ(matches, 1) << epoch;
  }
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int count) { return count > 0; }));
}

TEST(Augmented, PaddingLargerThanTheImageIsAllowed) {
  const Augmented data(counting(1, Shape{1, 2, 2}), {.crop_padding = 9}, 2);
  for (std::uint64_t epoch = 0; epoch < 50; ++epoch) {
    EXPECT_EQ(read_samples(data, {0}, epoch).dense.size(), 4U);
  }
  EXPECT_THROW(Augmented(counting(1, Shape{4}), {.flip = true}, 2), InputError);
}

TEST(Normalize, MeasuresAndAppliesPerChannel) {
  const auto data = counting(500, Shape{2, 3, 4});
  const auto normal = normalize(data, measure_normalization(*data));
  const Normalization after = measure_normalization(*normal);
  ASSERT_EQ(after.mean.size(), 2U);
  for (std::size_t c = 0; c < 2; ++c) {
    EXPECT_NEAR(after.mean[c], 0, 1e-5);
    EXPECT_NEAR(after.deviation[c], 1, 1e-5);
  }
  // Above a decorator it is a second pass, with the same result.
  const auto range = std::make_shared<Subset>(data, Sampler(500, 0, false), 0, 500);
  const auto second = normalize(range, measure_normalization(*data));
  const Batch a = read_samples(*normal, {3, 77});
  const Batch b = read_samples(*second, {3, 77});
  for (std::size_t i = 0; i < a.dense.size(); ++i) {
    EXPECT_NEAR(a.dense[i], b.dense[i], 1e-5);
  }
}

TEST(Normalize, ConstantFeaturesStayFinite) {
  const auto data = counting(1, Shape{4});
  const auto normal = normalize(data, measure_normalization(*data));
  EXPECT_EQ(read_samples(*normal, {0}).dense, (std::vector<float>{0, 0, 0, 0}));
  EXPECT_THROW(normalize(data, {{1, 2}, {1, 2}}), InputError);
  EXPECT_THROW(normalize(data, {{0}, {0}}), InputError);
}

}  // namespace
}  // namespace distbelief
