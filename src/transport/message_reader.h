#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "transport/frame.h"
#include "transport/message.h"

namespace distbelief {

/// Finds the messages in the bytes of a connection, which come in pieces of any size. Memory is asked for as bytes
/// come, never because a header announces them. One thread.
class MessageReader {
 public:
  /// `longest`: how many bytes a message's body may have.
  explicit MessageReader(std::size_t longest) : longest_(longest) {}

  /// Holds for messages whose header comes later.
  void set_longest(std::size_t longest) { longest_ = longest; }

  struct [[nodiscard]] Step {
    enum class Kind : std::uint8_t {
      needs_more,  ///< all bytes are used up
      message,
      fault,  ///< these are no messages; nothing that comes later is either
    };
    Kind kind = Kind::needs_more;
    Message message = {};
    std::string reason = {};  ///< of a fault, for people
  };

  /// Takes bytes off the front of `bytes` until a message is whole or none are left.
  Step next(std::span<const std::byte>& bytes);

 private:
  std::size_t longest_;
  FrameHeaderBytes head_{};
  std::size_t head_filled_ = 0;
  FrameHeader header_;  // valid when the head is full
  std::string body_;
  std::array<std::byte, kFrameTrailerBytes> trailer_{};
  std::size_t trailer_filled_ = 0;
};

/// The frame that a MessageReader makes `message` of.
std::string encode_message(const Message& message);

}  // namespace distbelief
