#include "data/formats/idx.h"

#include "data/test_folder.h"

namespace distbelief {
namespace {

using testing::HasSubstr;

std::string idx(std::initializer_list<std::uint32_t> dims, std::string_view values) {
  std::string out = {0, 0, 8, static_cast<char>(dims.size())};
  for (const std::uint32_t dim : dims) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      out.push_back(static_cast<char>(dim >> shift));
    }
  }
  return out.append(values);
}

FileBytes bytes_of_text(const std::string& text) { return {"a-file", nullptr, std::as_bytes(std::span(text))}; }

const std::string kImages = idx({3, 2, 2}, std::string("\x00\x33\x66\xff"
                                                       "abcdefgh",
                                                       12));
const std::string kLabels = idx({3}, std::string("\x02\x00\x01", 3));

TEST(Idx, ReadsImagesAndLabelsPlainAndCompressed) {
  const TestFolder folder;
  folder.write("train-images-idx3-ubyte", kImages);
  folder.write_gz("train-labels-idx1-ubyte.gz", kLabels);
  folder.write_gz("t10k-images-idx3-ubyte.gz", idx({1, 2, 2}, "wxyz"));
  folder.write("t10k-labels-idx1-ubyte", idx({1}, std::string(1, '\0')));
  ASSERT_TRUE(is_idx_folder(folder.path()));
  const IdxSplits splits = open_idx_folder(folder.path());
  EXPECT_EQ(splits.train->spec().input, (Shape{1, 2, 2}));
  EXPECT_EQ(splits.train->spec().classes, 3);
  EXPECT_EQ(splits.test->spec().classes, 3) << "test has the classes of train, though it shows fewer";
  EXPECT_EQ(splits.train->size(), 3U);
  Batch batch;
  splits.train->read(std::vector<std::uint64_t>{2, 0}, 4, batch);
  EXPECT_EQ(batch.ids, (std::vector<std::uint64_t>{2, 0}));
  EXPECT_EQ(batch.epoch, 4U);
  EXPECT_EQ(batch.classes, (std::vector<std::int32_t>{1, 2}));
  ASSERT_EQ(batch.dense.size(), 8U);
  EXPECT_FLOAT_EQ(batch.dense[0], 'e' / 255.0F);
  EXPECT_FLOAT_EQ(batch.dense[5], 0.2F);
  EXPECT_FLOAT_EQ(batch.dense[7], 1.0F);
}

TEST(Idx, EveryTruncationIsAnError) {
  for (std::size_t size = 0; size < kImages.size(); ++size) {
    const std::string part = kImages.substr(0, size);
    EXPECT_THAT(error_of([&] { parse_idx(bytes_of_text(part)); }), HasSubstr("a-file: ")) << size;
  }
}

TEST(Idx, EveryTruncationOfGzipIsAnError) {
  const TestFolder folder;
  const std::string whole = [&] {
    std::ifstream in(folder.write_gz("x.gz", kImages), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }();
  EXPECT_EQ(parse_idx(inflate_if_gzip(bytes_of_text(whole))).dims.size(), 3U);
  for (std::size_t size = 2; size < whole.size(); ++size) {
    const std::string part = whole.substr(0, size);
    EXPECT_THAT(error_of([&] { inflate_if_gzip(bytes_of_text(part)); }), HasSubstr("a-file: ")) << size;
  }
  const std::string padded = whole + std::string(5, '\0');
  EXPECT_EQ(inflate_if_gzip(bytes_of_text(padded)).bytes.size(), kImages.size());
  const std::string twice = whole + whole;
  EXPECT_EQ(inflate_if_gzip(bytes_of_text(twice)).bytes.size(), 2 * kImages.size());
  std::string corrupt = whole;
  corrupt[whole.size() - 6] ^= 1;  // the checksum
  EXPECT_THAT(error_of([&] { inflate_if_gzip(bytes_of_text(corrupt)); }), HasSubstr("broken gzip data"));
}

TEST(Idx, ErrorsSayWhatWasExpected) {
  const auto message = [](const std::string& text) { return error_of([&] { parse_idx(bytes_of_text(text)); }); };
  EXPECT_THAT(message("hello world"), HasSubstr("not an IDX file"));
  EXPECT_THAT(message(std::string("\0\0\x0d\x01\0\0\0\1", 8)),
              HasSubstr("expected IDX type 08 (unsigned bytes), not 0d"));
  EXPECT_THAT(message(idx({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, "")),
              HasSubstr("promises more values than the 0 bytes"));
  EXPECT_THAT(message(idx({0}, "")), HasSubstr("holds no samples"));
  EXPECT_THAT(message(kImages + "x"), HasSubstr("expected 12 bytes after the header of 16, but there are 13"));
}

TEST(Idx, LabelsMustFitTheImages) {
  const std::string two = idx({2}, "ab");
  EXPECT_THAT(error_of([&] { open_idx(bytes_of_text(kImages), bytes_of_text(two)); }), HasSubstr("2 labels, but"));
  EXPECT_THAT(error_of([&] { open_idx(bytes_of_text(kImages), bytes_of_text(kLabels), 2); }),
              HasSubstr("label 2 of image 0: expected 0 to 1"));
  EXPECT_THAT(error_of([&] { open_idx(bytes_of_text(kLabels), bytes_of_text(kLabels)); }),
              HasSubstr("expected images"));
}

TEST(Idx, MissingLabelsAreNamed) {
  const TestFolder folder;
  folder.write("train-images-idx3-ubyte", kImages);
  EXPECT_THAT(error_of([&] { open_idx_folder(folder.path()); }), HasSubstr("train-labels-idx1-ubyte.gz"));
}

}  // namespace
}  // namespace distbelief
