#include "metrics/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "base/error.h"
#include "base/file.h"

namespace distbelief {
namespace {

// A decoder of its own, bit by bit from the descriptions of CRC32C, TFRecord and protobuf, to share no mistake.

std::uint32_t slow_crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc & 1U) != 0 ? (crc >> 1) ^ 0x82F63B78U : crc >> 1;
    }
  }
  return ~crc;
}

std::uint64_t number_at(std::string_view bytes, std::size_t at, int width) {
  std::uint64_t number = 0;
  for (int i = width - 1; i >= 0; --i) {
    number = number << 8 | static_cast<unsigned char>(bytes.at(at + static_cast<std::size_t>(i)));
  }
  return number;
}

void expect_checksum(std::string_view bytes, std::uint64_t masked) {
  const auto rotated = static_cast<std::uint32_t>(masked) - 0xA282EAD8U;
  EXPECT_EQ((rotated << 15) | (rotated >> 17), slow_crc32c(bytes));
}

std::vector<std::string> records_of(const std::string& file) {
  std::vector<std::string> records;
  std::size_t at = 0;
  while (at < file.size()) {
    const std::uint64_t length = number_at(file, at, 8);
    expect_checksum(std::string_view(file).substr(at, 8), number_at(file, at + 8, 4));
    records.push_back(file.substr(at + 12, length));
    expect_checksum(records.back(), number_at(file, at + 12 + length, 4));
    at += 16 + length;
  }
  return records;
}

/// Numbers and bytes by field; a field that repeats keeps all.
struct Message {
  std::map<int, std::uint64_t> numbers;
  std::map<int, std::vector<std::string>> bytes;

  explicit Message(std::string_view text) {
    std::size_t at = 0;
    const auto varint = [&] {
      std::uint64_t value = 0;
      for (int shift = 0;; shift += 7) {
        const auto byte = static_cast<unsigned char>(text.at(at++));
        value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
        if (byte < 0x80) {
          return value;
        }
      }
    };
    while (at < text.size()) {
      const std::uint64_t key = varint();
      const int field = static_cast<int>(key >> 3);
      switch (key & 7) {
        case 0:
          numbers[field] = varint();
          break;
        case 1:
          numbers[field] = number_at(text, at, 8);
          at += 8;
          break;
        case 2: {
          const std::uint64_t length = varint();
          bytes[field].emplace_back(text.substr(at, length));
          at += length;
          break;
        }
        case 5:
          numbers[field] = number_at(text, at, 4);
          at += 4;
          break;
        default:
          ADD_FAILURE() << "wire type " << (key & 7);
          return;
      }
    }
  }
};

class EventFileTest : public testing::Test {
 protected:
  EventFileTest() { std::filesystem::create_directories(folder_); }
  ~EventFileTest() override { std::filesystem::remove_all(folder_); }
  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("distbelief_event_test." + std::to_string(::getpid()));
};

TEST_F(EventFileTest, IsWhatTensorBoardReads) {
  EventFile file(folder_, "host", 1700000000.5, 300);
  const std::vector<std::pair<std::string, double>> values = {{"loss/train", 0.25}, {"accuracy/test", 0.9}};
  file.scalars(1234567, 1700000001.5, values);
  EXPECT_EQ(file.path().filename().string().rfind("events.out.tfevents.1700000000.host.", 0), 0U);

  const auto records = records_of(read_file(file.path()));
  ASSERT_EQ(records.size(), 3U);
  EXPECT_THAT(Message(records[0]).bytes.at(3), testing::ElementsAre("brain.Event:2"));

  const Message session(records[1]);
  EXPECT_EQ(session.numbers.at(2), 300U);
  EXPECT_EQ(Message(session.bytes.at(7).at(0)).numbers.at(1), 1U);

  const Message event(records[2]);
  double wall_time = 0;
  std::memcpy(&wall_time, &event.numbers.at(1), 8);
  EXPECT_EQ(wall_time, 1700000001.5);
  EXPECT_EQ(event.numbers.at(2), 1234567U);
  const Message summary(event.bytes.at(5).at(0));
  ASSERT_EQ(summary.bytes.at(1).size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    const Message value(summary.bytes.at(1)[i]);
    EXPECT_EQ(value.bytes.at(1).at(0), values[i].first);
    const auto bits = static_cast<std::uint32_t>(value.numbers.at(2));
    float number = 0;
    std::memcpy(&number, &bits, 4);
    EXPECT_EQ(number, static_cast<float>(values[i].second));
  }
}

TEST_F(EventFileTest, AMissingFolderIsNamed) { EXPECT_THROW(EventFile(folder_ / "none", "host", 0, 0), FileError); }

}  // namespace
}  // namespace distbelief
