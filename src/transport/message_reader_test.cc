#include "transport/message_reader.h"

#include <gtest/gtest.h>

#include <vector>

namespace distbelief {
namespace {

using StepKind = MessageReader::Step::Kind;

TEST(MessageReader, FindsMessagesHoweverTheBytesAreCut) {
  const std::vector<Message> sent = {{1, "join"}, {2, ""}, {65535, std::string(1000, 'x')}};
  std::string wire;
  for (const Message& message : sent) {
    wire += encode_message(message);
  }
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{29}, wire.size()}) {
    MessageReader reader(1000);
    std::vector<Message> came;
    for (std::size_t at = 0; at < wire.size(); at += piece) {
      const std::string part = wire.substr(at, piece);
      auto bytes = std::as_bytes(std::span(part));
      for (;;) {
        auto step = reader.next(bytes);
        ASSERT_NE(step.kind, StepKind::fault) << step.reason;
        if (step.kind == StepKind::needs_more) {
          break;
        }
        came.push_back(std::move(step.message));
      }
      EXPECT_TRUE(bytes.empty());
    }
    EXPECT_EQ(came, sent);
  }
}

TEST(MessageReader, RefusesWhatIsTooLongBeforeItsBytesCome) {
  MessageReader reader(3);
  const std::string wire = encode_message({1, "four"}).substr(0, kFrameHeaderBytes);
  auto bytes = std::as_bytes(std::span(wire));
  const auto step = reader.next(bytes);
  EXPECT_EQ(step.kind, StepKind::fault);
  EXPECT_EQ(step.reason, "sent a frame of 4 bytes, of which at most 3 are allowed");
}

TEST(MessageReader, NoticesAChangedByte) {
  MessageReader reader(100);
  std::string wire = encode_message({1, "four"});
  wire[kFrameHeaderBytes + 2] ^= 1;
  auto bytes = std::as_bytes(std::span(wire));
  EXPECT_EQ(reader.next(bytes).reason, "sent a message with a wrong checksum");
}

}  // namespace
}  // namespace distbelief
