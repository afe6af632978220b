#include "data/open.h"

#include <png.h>

#include "data/test_folder.h"

namespace distbelief {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string small_png() {
  const unsigned char pixels[12] = {0, 50, 100, 150, 200, 250, 1, 2, 3, 4, 5, 6};
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = 2;
  png.height = 2;
  png.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(png);
  std::string out(size, '\0');
  png_image_write_to_memory(&png, out.data(), &size, 0, pixels, 0, nullptr);
  out.resize(size);
  return out;
}

TEST(OpenData, UnknownNamesGetTheNearestSpelling) {
  EXPECT_THAT(error_of([] { open_data({.source = "fashion-mnits"}); }),
              AllOf(HasSubstr("did you mean 'fashion-mnist'?"), HasSubstr("cifar10")));
  EXPECT_THAT(error_of([] { open_data({.source = "/none/such"}); }), HasSubstr("no such file, folder or known name;"));
}

TEST(OpenData, MissingKnownDataSaysHowToGetIt) {
  const TestFolder folder;
  EXPECT_THAT(error_of([&] { open_data({.source = "cifar10", .folders = {folder.path()}}); }),
              HasSubstr("not on this machine; unpack cifar-10-binary.tar.gz"));
}

TEST(OpenData, NamedSetsAreFoundInTheGivenFolders) {
  const TestFolder folder;
  folder.write("cifar-10-batches-bin/data_batch_1.bin", std::string(3073, '\1'));
  const DataSplits splits = open_data({.source = "cifar10", .folders = {folder.path()}});
  EXPECT_EQ(splits.name, "cifar10");
  EXPECT_EQ(splits.description, "3x32x32, 10 classes, 1 samples");
}

TEST(OpenData, FashionMnistIsWhatItsPackageSays) {
  for (const KnownData& known : known_data()) {
    if (known.name == "fashion-mnist" && !known.folder.empty()) {
      const DataSplits splits = open_data({.source = "fashion-mnist"});
      EXPECT_EQ(splits.description, "1x28x28, 10 classes, 60000 samples and 10000 for testing");
      EXPECT_EQ(splits.train->class_names()[9], "Ankle boot");
      const Normalization normal = measure_normalization(*splits.train, 1000);
      EXPECT_NEAR(normal.mean[0], 0.286, 0.01);
      EXPECT_NEAR(normal.deviation[0], 0.353, 0.01);
      return;
    }
  }
  GTEST_FAIL() << "fashion-mnist is missing: apt install dataset-fashion-mnist";
}

TEST(OpenData, SyntheticSourcesAreNamed) {
  const DataSplits splits = open_data({.source = "synthetic:classes=3,shape=4,samples=10"});
  EXPECT_EQ(splits.description, "4, 3 classes, 10 samples and 2 for testing");
  EXPECT_EQ(open_data({.source = "synthetic"}).train->size(), 1000U);
}

TEST(OpenData, FilesAreOpenedByTheirEnding) {
  const TestFolder folder;
  const auto csv = folder.write("a.csv", "1,2,0\n3,4,1\n");
  const auto gz = folder.write_gz("b.csv.gz", "1,2,0\n3,4,1\n");
  const auto svm = folder.write("c.libsvm", "1 1:1\n0 3:1\n");
  const auto test = folder.write("d.csv", "5,6,1\n");
  EXPECT_EQ(open_data({.source = csv}).description, "2, 2 classes, 2 samples");
  EXPECT_EQ(open_data({.source = gz}).train->size(), 2U);
  EXPECT_TRUE(open_data({.source = svm}).train->spec().sparse);
  const DataSplits both = open_data({.source = csv, .test_source = test});
  EXPECT_EQ(both.test->size(), 1U);
  EXPECT_EQ(both.test->spec().classes, 2);
  EXPECT_THAT(error_of([&] { open_data({.source = folder.write("e.docx", "x")}); }), HasSubstr("unknown kind of file"));
  EXPECT_THAT(error_of([&] { open_data({.source = folder.write("f.npy", "x")}); }), HasSubstr("f_labels.npy"));
  EXPECT_THAT(error_of([&] { open_data({.source = csv, .test_source = "/none"}); }), HasSubstr("test data '/none'"));
  const auto other = folder.write("g.csv", "5,6,7,1\n");
  EXPECT_THAT(error_of([&] { open_data({.source = csv, .test_source = other}); }),
              HasSubstr("g.csv:1: features: 3, expected 2"));
}

TEST(OpenData, FoldersOfTablesHaveTrainAndTest) {
  const TestFolder folder;
  folder.write("train.libsvm", "+1 1:1 9:1\n-1 3:1\n");
  folder.write("test.libsvm", "+1 1:1\n");
  const DataSplits splits = open_data({.source = folder.path()});
  EXPECT_EQ(splits.test->spec().input, splits.train->spec().input);
}

TEST(OpenData, FoldersOfImagesHaveTrainAndTest) {
  const TestFolder folder;
  folder.write("train/a/1.png", small_png());
  folder.write("train/b/1.png", small_png());
  folder.write("val/b/1.png", small_png());
  const DataSplits splits = open_data({.source = folder.path().string() + "/", .image_height = 5, .image_width = 5});
  EXPECT_EQ(splits.train->spec().input, (Shape{3, 5, 5}));
  EXPECT_EQ(splits.test->spec().classes, 2);
  EXPECT_FALSE(splits.name.empty());
  EXPECT_EQ(open_data({.source = folder.path() / "train"}).train->size(), 2U);
  folder.write("val/c/1.png", small_png());
  EXPECT_THAT(error_of([&] { open_data({.source = folder.path()}); }), HasSubstr("class 'c' is none of the training"));
}

TEST(OpenData, PredictionNeedsNoTargets) {
  const TestFolder folder;
  const auto image = folder.write("1.png", small_png());
  folder.write("2.png", small_png());
  EXPECT_EQ(open_data({.source = folder.path(), .labelled = false}).train->size(), 2U);
  EXPECT_EQ(open_data({.source = image, .labelled = false}).train->size(), 1U);
  EXPECT_THAT(error_of([&] { open_data({.source = image}); }), HasSubstr("one image has no class"));
  EXPECT_THAT(error_of([&] { open_data({.source = folder.path()}); }), HasSubstr("no data found"));
  const auto csv = folder.write("a.csv", "1,2,0\n3,4,1\n");
  EXPECT_EQ(open_data({.source = csv, .labelled = false}).description, "3, no targets, 2 samples");
}

}  // namespace
}  // namespace distbelief
