#include "base/utf8_text.h"

#include <gtest/gtest.h>

namespace distbelief {
namespace {

TEST(Utf8Text, LeavesUtf8AsItIs) {
  for (const std::string text : {"", "cat", "caf\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"}) {
    EXPECT_EQ(utf8_text(text), text);
  }
}

TEST(Utf8Text, ReplacesWhatIsNone) {
  EXPECT_EQ(utf8_text("caf\xE9"), "caf\xEF\xBF\xBD");
  EXPECT_EQ(utf8_text("\xE9t\xE9"), "\xEF\xBF\xBDt\xEF\xBF\xBD");
  EXPECT_EQ(utf8_text("\xE2\x82x"), "\xEF\xBF\xBDx");
  EXPECT_EQ(utf8_text("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // half of a pair of UTF-16
}

}  // namespace
}  // namespace distbelief
