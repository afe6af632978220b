#include "data/formats/cifar.h"

#include "data/test_folder.h"

namespace distbelief {
namespace {

using testing::HasSubstr;

std::string record(int label, char fill) { return std::string(1, static_cast<char>(label)) + std::string(3072, fill); }

TEST(Cifar, JoinsTheBatchesInOrder) {
  const TestFolder folder;
  folder.write("data_batch_1.bin", record(3, 'a') + record(4, 'b'));
  folder.write("data_batch_2.bin", record(9, 'c'));
  EXPECT_TRUE(is_cifar10_folder(folder.path()));
  EXPECT_EQ(open_cifar10_folder(folder.path()).test, nullptr);
  folder.write("test_batch.bin", record(0, 'd'));
  const CifarSplits splits = open_cifar10_folder(folder.path());
  EXPECT_EQ(splits.train->size(), 3U);
  EXPECT_EQ(splits.test->size(), 1U);
  EXPECT_EQ(splits.train->spec().input, (Shape{3, 32, 32}));
  EXPECT_EQ(splits.train->class_names()[3], "cat");
  Batch batch;
  splits.train->read(std::vector<std::uint64_t>{2, 0}, 0, batch);
  EXPECT_EQ(batch.classes, (std::vector<std::int32_t>{9, 3}));
  EXPECT_FLOAT_EQ(batch.dense[0], 'c' / 255.0F);
  EXPECT_FLOAT_EQ(batch.dense[2 * 3072 - 1], 'a' / 255.0F);
}

TEST(Cifar, BrokenFilesAreNamed) {
  const TestFolder folder;
  folder.write("data_batch_1.bin", record(3, 'a').substr(1));
  EXPECT_THAT(error_of([&] { open_cifar10_folder(folder.path()); }),
              HasSubstr("data_batch_1.bin: 3072 bytes: expected records of 3073"));
  folder.write("data_batch_1.bin", record(3, 'a') + record(10, 'b'));
  EXPECT_THAT(error_of([&] { open_cifar10_folder(folder.path()); }), HasSubstr("byte 3073: label 10: expected 0 to 9"));
  folder.write("data_batch_1.bin", "");
  EXPECT_THAT(error_of([&] { open_cifar10_folder(folder.path()); }), HasSubstr("0 bytes"));
}

}  // namespace
}  // namespace distbelief
