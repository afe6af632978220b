#include "data/formats/npy.h"

#include <limits>

#include "base/bytes.h"
#include "base/error.h"
#include "data/test_folder.h"
#include "data/test_read.h"

namespace distbelief {
namespace {

using testing::HasSubstr;

template <typename T>
std::string npy(const std::string& type, const std::string& shape, const std::vector<T>& values, bool fortran = false) {
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}", type, fortran ? "True" : "False", shape);
  header.resize((header.size() + 10 + 64) / 64 * 64 - 10, ' ');
  std::string out = "\x93NUMPY";
  out += '\1';
  out += '\0';
  append_little_endian(out, static_cast<std::uint16_t>(header.size()));
  out += header;
  for (const T value : values) {
    append_little_endian(out, value);
  }
  return out;
}

FileBytes file_of(const std::string& text, const char* name = "x.npy") {
  return {name, nullptr, std::as_bytes(std::span(text))};
}

TEST(Npy, ANumberThatIsNotFiniteIsRefusedWithItsSample) {
  const std::string floats = npy<float>("<f4", "(2, 2)", {1, 2, 3, std::numeric_limits<float>::quiet_NaN()});
  try {
    (void)open_npy(file_of(floats), nullptr, {});
    FAIL();
  } catch (const FileError& error) {
    EXPECT_STREQ(error.what(), "x.npy: sample 1: expected finite numbers, not nan");
  }
}

TEST(Npy, ReadsEveryType) {
  const std::string bytes = npy<std::uint8_t>("|u1", "(2, 2, 1)", {0, 51, 102, 255});
  const auto images = open_npy(file_of(bytes), nullptr, {});
  EXPECT_EQ(images->spec().input, (Shape{1, 2, 1}));
  EXPECT_FLOAT_EQ(read_samples(*images, {0}).dense[1], 0.2F);
  const std::string floats = npy<float>("<f4", "(2, 2)", {1, 2, 3, 4});
  EXPECT_EQ(read_samples(*open_npy(file_of(floats), nullptr, {}), {1, 0}).dense, (std::vector<float>{3, 4, 1, 2}));
  const std::string doubles = npy<double>("<f8", "(2,)", {1, 2});
  EXPECT_EQ(read_samples(*open_npy(file_of(doubles), nullptr, {}), {1}).dense, (std::vector<float>{2}));
  const std::string longs = npy<std::int64_t>("<i8", "(1, 3)", {7, 8, 9});
  const auto indices = open_npy(file_of(longs), nullptr, {});
  EXPECT_TRUE(indices->spec().indices);
  EXPECT_EQ(read_samples(*indices, {0}).indices, (std::vector<std::int32_t>{7, 8, 9}));
  const std::string ints = npy<std::int32_t>("<i4", "(3, 1)", {7, 8, 9});
  EXPECT_EQ(read_samples(*open_npy(file_of(ints), nullptr, {}), {2}).indices, (std::vector<std::int32_t>{9}));
}

TEST(Npy, LabelsAreClassesOrValues) {
  const std::string inputs = npy<float>("<f4", "(2, 1)", {1, 2});
  const std::string integers = npy<std::int64_t>("<i8", "(2,)", {4, 0});
  const std::string values = npy<double>("<f8", "(2, 2)", {1, 2, 3, 4});
  const std::string three = npy<std::int64_t>("<i8", "(3,)", {4, 0, 1});
  const std::string negative = npy<std::int64_t>("<i8", "(2,)", {4, -1});
  const FileBytes classes_file = file_of(integers, "y.npy");
  const auto classes = open_npy(file_of(inputs), &classes_file, {});
  EXPECT_EQ(classes->spec().classes, 5);
  EXPECT_EQ(read_samples(*classes, {1, 0}).classes, (std::vector<std::int32_t>{0, 4}));
  EXPECT_THAT(error_of([&] { open_npy(file_of(inputs), &classes_file, {.classes = 4}); }),
              HasSubstr("entry 0: label 4"));
  const FileBytes values_file = file_of(values, "y.npy");
  const auto regression = open_npy(file_of(inputs), &values_file, {});
  EXPECT_EQ(regression->spec().targets, 2);
  EXPECT_EQ(read_samples(*regression, {1}).targets, (std::vector<float>{3, 4}));
  const FileBytes three_file = file_of(three, "y.npy");
  EXPECT_THAT(error_of([&] { open_npy(file_of(inputs), &three_file, {}); }),
              HasSubstr("y.npy: labels of shape 3, but x.npy has 2 samples"));
  const FileBytes negative_file = file_of(negative, "y.npy");
  EXPECT_THAT(error_of([&] { open_npy(file_of(inputs), &negative_file, {}); }), HasSubstr("entry 1: label -1"));
}

TEST(Npy, IndicesThatDoNotFitAreFoundOnRead) {
  const std::string longs = npy<std::int64_t>("<i8", "(1, 1)", {std::int64_t{1} << 40});
  const auto data = open_npy(file_of(longs), nullptr, {});
  EXPECT_THAT(error_of([&] { read_samples(*data, {0}); }), HasSubstr("sample 0: index 1099511627776"));
}

TEST(Npy, EveryTruncationIsAnError) {
  const std::string whole = npy<float>("<f4", "(2, 2)", {1, 2, 3, 4});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string part = whole.substr(0, size);
    EXPECT_THAT(error_of([&] { parse_npy(file_of(part)); }), HasSubstr("x.npy: ")) << size;
  }
}

TEST(Npy, ErrorsSayWhatWasExpected) {
  const auto message = [](const std::string& text) { return error_of([&] { parse_npy(file_of(text)); }); };
  EXPECT_THAT(message(npy<float>(">f4", "(1,)", {1})), HasSubstr("type '>f4': expected '|u1'"));
  EXPECT_THAT(message(npy<float>("<f4", "(1,)", {1}, true)), HasSubstr("expected C order"));
  EXPECT_THAT(message(npy<float>("<f4", "()", {1})), HasSubstr("a single number"));
  EXPECT_THAT(message(npy<float>("<f4", "(0, 3)", {})), HasSubstr("holds no samples"));
  EXPECT_THAT(message(npy<float>("<f4", "(9999999999999, 9999999999)", {1})), HasSubstr("promises more values"));
  EXPECT_THAT(message(npy<float>("<f4", "(1,)", {1, 2})),
              HasSubstr("expected 4 bytes after the header, but there are 8"));
  EXPECT_THAT(message(npy<float>("<f4", "(x,)", {1})), HasSubstr("something else than counts"));
}

TEST(Npy, LabelsAreFoundBeside) {
  const TestFolder folder;
  const auto x = folder.write("x_train.npy", "");
  const auto z = folder.write("faces.npy", "");
  EXPECT_EQ(find_npy_labels(x), "");
  const auto y = folder.write("y_train.npy", "");
  const auto labels = folder.write("faces_labels.npy", "");
  EXPECT_EQ(find_npy_labels(x), y);
  EXPECT_EQ(find_npy_labels(z), labels);
}

}  // namespace
}  // namespace distbelief
