#include "transport/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace distbelief {
namespace {

TEST(Address, TextAndParseAreInverse) {
  for (const char* text : {"tcp:node7:4000", "tcp:127.0.0.1:0", "tcp:[::1]:65535", "unix:/run/job/socket"}) {
    EXPECT_EQ(Address::parse(text).text(), text);
  }
  EXPECT_EQ(Address::parse("tcp:[fe80::1]:80"), Address::tcp("fe80::1", 80));
  EXPECT_EQ(Address::parse("unix:a:b"), Address::unix_path("a:b"));
}

TEST(Address, RefusesWithOneLineThatNamesTheText) {
  for (const char* text : {"", "tcp", "tcp:", "tcp:host", "tcp::80", "tcp:host:", "tcp:host:x", "tcp:host:65536",
                           "tcp:host:-1", "tcp:[::1:80", "tcp:::1:80", "tcp:[]:80", "unix:", "udp:host:1", "host:1"}) {
    try {
      (void)Address::parse(text);
      ADD_FAILURE() << "took '" << text << "'";
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(std::string("address '") + text + "'"));
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
}

TEST(Address, RefusesAPathThatNoSocketCanHave) {
  EXPECT_NO_THROW((void)Address::unix_path(std::string(107, 'x')));
  EXPECT_THROW((void)Address::unix_path(std::string(108, 'x')), InputError);
}

}  // namespace
}  // namespace distbelief
