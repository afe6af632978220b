#include "cluster/store_url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace distbelief {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string store_complaint(const std::string& text) {
  try {
    (void)StoreUrl::parse(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "none";
}

TEST(StoreUrl, NamesServersAndTheJob) {
  const StoreUrl url = StoreUrl::parse("etcd://alpha:2379,[::1]:4000,beta/team/one");
  EXPECT_EQ(url.servers,
            (std::vector{Address::tcp("alpha", 2379), Address::tcp("::1", 4000), Address::tcp("beta", 2379)}));
  EXPECT_EQ(url.name, "team/one");
  EXPECT_FALSE(url.encrypted);
  EXPECT_EQ(url.text(), "etcd://alpha:2379,[::1]:4000,beta:2379/team/one");
  EXPECT_EQ(StoreUrl::parse(url.text()), url);
}

TEST(StoreUrl, HasDefaults) {
  EXPECT_EQ(StoreUrl::parse("etcd://alpha").text(), "etcd://alpha:2379/distbelief");
  EXPECT_EQ(StoreUrl::parse("etcd://alpha/").text(), "etcd://alpha:2379/distbelief");
  EXPECT_EQ(StoreUrl::parse("etcds://[::1]/x/").text(), "etcds://[::1]:2379/x");
}

TEST(StoreUrl, SaysWhatIsWrong) {
  for (const std::string text : {"", "alpha:2379", "http://alpha:2379", "etcd:alpha:2379", "file:///tmp"}) {
    EXPECT_THAT(store_complaint(text),
                AllOf(HasSubstr("--store " + text), HasSubstr("expected etcd://HOST:PORT/NAME")));
  }
  EXPECT_THAT(store_complaint("etcd://"), HasSubstr("'' is no HOST:PORT"));
  EXPECT_THAT(store_complaint("etcd://alpha:x/y"), HasSubstr("'alpha:x' is no HOST:PORT"));
  EXPECT_THAT(store_complaint("etcd://alpha:0"), HasSubstr("'alpha:0' is no HOST:PORT"));
  EXPECT_THAT(store_complaint("etcd://alpha:1,,beta:2"), HasSubstr("'' is no HOST:PORT"));
  EXPECT_THAT(store_complaint("etcd://alpha:1/a b"), HasSubstr("letters, digits"));
}

}  // namespace
}  // namespace distbelief
