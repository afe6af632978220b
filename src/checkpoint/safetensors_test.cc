#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>

#include "base/bytes.h"
#include "base/error.h"

namespace distbelief {
namespace {

using testing::HasSubstr;

std::string file_of(const std::string& header, const std::string& data) {
  std::string file;
  append_little_endian(file, static_cast<std::uint64_t>(header.size()));
  return file + header + data;
}

/// What the reader says to these bytes; empty when it takes them.
std::string complaint(const std::string& file) {
  try {
    const SafetensorsView view(std::as_bytes(std::span(file)), "x.safetensors");
    return "";
  } catch (const FileError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    EXPECT_EQ(std::string(error.what()).rfind("x.safetensors: ", 0), 0U) << error.what();
    return error.what();
  }
}

std::vector<float> floats_of(const std::string& type, const std::string& data, std::size_t count) {
  const std::string file = file_of(R"({"a":{"dtype":")" + type + R"(","shape":[)" + std::to_string(count) +
                                       R"(],"data_offsets":[0,)" + std::to_string(data.size()) + "]}}",
                                   data);
  const SafetensorsView view(std::as_bytes(std::span(file)), "x.safetensors");
  std::vector<float> values(count);
  view.read(*view.find("a"), values);
  return values;
}

template <typename T>
std::string packed(std::initializer_list<T> values) {
  std::string data;
  for (const T value : values) {
    append_little_endian(data, value);
  }
  return data;
}

class SafetensorsFileTest : public testing::Test {
 protected:
  ~SafetensorsFileTest() override { std::filesystem::remove(path_); }
  const std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("distbelief_safetensors_test." + std::to_string(::getpid()));
};

TEST_F(SafetensorsFileTest, GivesBackWhatWasWritten) {
  const std::vector<float> weight = {1, -2, 3.5F, std::nanf(""), 5, 6};
  const std::vector<float> scalar = {7};
  const std::vector<FloatArray> arrays = {
      {"z/weight", {2, 3}, weight}, {"a \"quoted\"\n", {}, scalar}, {"none", {0, 4}, {}}};
  const FileSummary summary = write_safetensors(path_, arrays, {{"format", "pt"}});

  const SafetensorsFile file(path_);
  EXPECT_EQ(summary.bytes, file.bytes().size());
  EXPECT_EQ(summary.crc32c, crc32c(file.bytes()));
  EXPECT_EQ(file.view().metadata().at("format"), "pt");
  ASSERT_EQ(file.view().tensors().size(), 3U);
  EXPECT_EQ(file.view().expect("none", {0, 4}).begin, file.view().expect("none", {0, 4}).end);
  std::vector<float> read(6);
  file.view().read(file.view().expect("z/weight", {2, 3}), read);
  EXPECT_EQ(std::memcmp(read.data(), weight.data(), 24), 0);
  file.view().read(file.view().expect("a \"quoted\"\n", {}), std::span(read).first(1));
  EXPECT_EQ(read[0], 7);
}

TEST_F(SafetensorsFileTest, IsLaidOutAsTheFormatDemands) {
  const std::vector<float> values = {1, 2};
  write_safetensors(path_,
                    std::vector<FloatArray>{{"b", {1}, std::span(values).last(1)}, {"a", {1}, {values.data(), 1}}},
                    {{"k", "v"}});
  const std::string text = read_file(path_);
  const auto length = read_little_endian<std::uint64_t>(text.data());
  EXPECT_EQ(length % 8, 0U);
  const std::string expected = R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                               R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})";
  EXPECT_EQ(text.substr(8, expected.size()), expected);
  EXPECT_EQ(text.substr(8 + length), packed<float>({1, 2}));
}

TEST_F(SafetensorsFileTest, ExpectNamesFileTensorAndBothShapes) {
  const std::vector<float> values = {1, 2};
  write_safetensors(path_, std::vector<FloatArray>{{"b", {2}, values}});
  const SafetensorsFile file(path_);
  try {
    file.view().expect("b", {1, 2});
    FAIL();
  } catch (const FileError& error) {
    EXPECT_EQ(std::string(error.what()), path_.string() + ": tensor \"b\": expected shape 1x2, found 2");
  }
  EXPECT_THROW(file.view().expect("c", {1}), FileError);
}

TEST(Safetensors, ConvertsOtherTypesToFloat) {
  EXPECT_THAT(floats_of("I32", packed<std::int32_t>({-5, 7}), 2), testing::ElementsAre(-5, 7));
  EXPECT_THAT(floats_of("I64", packed<std::int64_t>({-5, 1LL << 40}), 2), testing::ElementsAre(-5, 0x1p40F));
  EXPECT_THAT(floats_of("U8", packed<std::uint8_t>({0, 255}), 2), testing::ElementsAre(0, 255));
  EXPECT_THAT(floats_of("F64", packed<double>({0.5, -3}), 2), testing::ElementsAre(0.5F, -3));
  EXPECT_THAT(floats_of("BOOL", packed<std::uint8_t>({0, 1}), 2), testing::ElementsAre(0, 1));
  EXPECT_THAT(floats_of("BF16", packed<std::uint16_t>({0x3F80, 0xC040}), 2), testing::ElementsAre(1, -3));
  // One, the largest, the smallest normal, the smallest subnormal, minus zero, minus infinity.
  const auto halves =
      floats_of("F16", packed<std::uint16_t>({0x3C00, 0x7BFF, 0x0400, 0x0001, 0x8000, 0xFC00, 0x7E00}), 7);
  EXPECT_THAT(std::span(halves).first(6), testing::ElementsAre(1, 65504, 0x1p-14F, 0x1p-24F, -0.0F, -INFINITY));
  EXPECT_TRUE(std::signbit(halves[4]));
  EXPECT_TRUE(std::isnan(halves[6]));
}

TEST(Safetensors, TakesWhatOthersWrite) {
  // No metadata, trailing blanks, tensors in any order of names, offsets that are not multiples of four.
  EXPECT_EQ(complaint(file_of(R"({"b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                              R"("a":{"dtype":"F32","shape":[1],"data_offsets":[3,7]}}   )",
                              "1234567")),
            "");
  EXPECT_EQ(complaint(file_of("{}", "")), "");
}

TEST(Safetensors, RefusesEveryLieOfTheHeader) {
  EXPECT_THAT(complaint(file_of(R"({"a":2e999})", "")), HasSubstr("number too large"));
  const std::string entry = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  EXPECT_THAT(complaint(""), HasSubstr("at least 8 bytes, found 0"));
  EXPECT_THAT(complaint(std::string(7, '\0')), HasSubstr("at least 8 bytes, found 7"));
  EXPECT_THAT(complaint(std::string(8, '\xFF')), HasSubstr("found a length of 18446744073709551615"));
  EXPECT_THAT(complaint(file_of("", "")), HasSubstr("expected a JSON header"));
  EXPECT_THAT(complaint(file_of(R"({"a":)", "")), HasSubstr("error at byte"));
  EXPECT_THAT(complaint(file_of("[]", "")), HasSubstr("JSON object"));
  EXPECT_THAT(complaint(file_of(std::string(100000, '['), "")), HasSubstr("JSON header"));
  EXPECT_THAT(complaint(file_of("{\"\xFF\":1}", "")), HasSubstr("JSON header"));
  EXPECT_THAT(complaint(file_of(R"({"a":)" + entry + R"(,"a":)" + entry + "}", "1234")),
              HasSubstr("\"a\": the header names"));
  EXPECT_THAT(complaint(file_of(R"({"__metadata__":{"a":1}})", "")), HasSubstr("strings only"));
  EXPECT_THAT(complaint(file_of(R"({"__metadata__":3})", "")), HasSubstr("strings only"));
  EXPECT_THAT(complaint(file_of(R"({"a\n":[]})", "")), HasSubstr(R"(tensor "a\n": expected exactly dtype)"));
}

TEST(Safetensors, RefusesEveryLieOfATensor) {
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return complaint(file_of(
        R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}", "12345678"));
  };
  EXPECT_EQ(one(R"("F32")", "[2]", "[0,8]"), "");
  EXPECT_THAT(one(R"("F4")", "[2]", "[0,8]"), HasSubstr("dtype \"F4\" is not known"));
  EXPECT_THAT(one("7", "[2]", "[0,8]"), HasSubstr("string as dtype"));
  EXPECT_THAT(one(R"("F32")", "2", "[0,8]"), HasSubstr("list of integers"));
  EXPECT_THAT(one(R"("F32")", "[-2]", "[0,8]"), HasSubstr("non-negative integers in shape"));
  EXPECT_THAT(one(R"("F32")", "[2.0]", "[0,8]"), HasSubstr("non-negative integers in shape"));
  EXPECT_THAT(one(R"("F32")", "[3]", "[0,8]"), HasSubstr("expected 12 bytes for F32 3, found 8"));
  EXPECT_THAT(one(R"("F32")", "[4611686018427387904,4,2]", "[0,8]"), HasSubstr("too large"));
  EXPECT_THAT(one(R"("F32")", "[18446744073709551615]", "[0,8]"), HasSubstr("too large"));
  EXPECT_THAT(one(R"("F32")", "[2]", "[0]"), HasSubstr("two non-negative"));
  EXPECT_THAT(one(R"("F32")", "[2]", "[0,-8]"), HasSubstr("two non-negative"));
  EXPECT_THAT(one(R"("F32")", "[2]", "[8,0]"), HasSubstr("not a range"));
  EXPECT_THAT(one(R"("F32")", "[2]", "[8,16]"), HasSubstr("not a range within the 8 bytes"));
  EXPECT_THAT(one(R"("F32")", "[1]", "[4,8]"), HasSubstr("begin at 0"));
  EXPECT_THAT(one(R"("F32")", "[1]", "[0,4]"), HasSubstr("expected 4 bytes of data, found 8"));
}

TEST(Safetensors, RefusesOverlap) {
  EXPECT_THAT(complaint(file_of(R"({"b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                                R"("a":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
                                "123456")),
              HasSubstr("tensor \"a\": expected its data to begin at 3"));
}

}  // namespace
}  // namespace distbelief
