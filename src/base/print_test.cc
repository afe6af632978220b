#include "base/print.h"

#include <gtest/gtest.h>

#include <memory>

namespace distbelief {
namespace {

using Stream = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

Stream open_stream(const char* path) { return {std::fopen(path, "w"), &std::fclose}; }

TEST(Print, WhatCannotBeWrittenIsToldWhenItIsFlushed) {
  const Stream full = open_stream("/dev/full");
  ASSERT_NE(full, nullptr);
  print_text(full.get(), "kept for now");
  EXPECT_EQ(flush_printed(full.get()), "cannot write: No space left on device");
  EXPECT_NE(flush_printed(full.get()), "") << "it is still not written";
}

TEST(Print, AStreamWithoutABufferThrowsNothingEither) {
  const Stream full = open_stream("/dev/full");
  ASSERT_NE(full, nullptr);
  std::setvbuf(full.get(), nullptr, _IONBF, 0);
  EXPECT_NO_THROW(print_text(full.get(), "lost at once"));
  EXPECT_NE(flush_printed(full.get()), "");
}

TEST(Print, NothingIsToldOfWhatWasWritten) {
  const Stream null = open_stream("/dev/null");
  ASSERT_NE(null, nullptr);
  print_text(null.get(), "gone where it was sent");
  EXPECT_EQ(flush_printed(null.get()), "");
}

}  // namespace
}  // namespace distbelief
