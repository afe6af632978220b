#include "train/peer_facts.h"

#include <gtest/gtest.h>

namespace distbelief {
namespace {

TEST(PeerFacts, AreReadAsTheyWereWritten) {
  const PeerFacts facts = {.first = "unix:/tmp/a folder/b", .late = "tcp:10.0.0.7:4000", .cores = "00ff"};
  const PeerFacts read = PeerFacts::parse(facts.text());
  EXPECT_EQ(read.first, facts.first);
  EXPECT_EQ(read.late, facts.late);
  EXPECT_EQ(read.cores, facts.cores);
}

TEST(PeerFacts, WhatIsMissingOrStrangeSaysNothing) {
  EXPECT_EQ(PeerFacts::parse("").first, "");
  EXPECT_EQ(PeerFacts::parse("[1, 2]").late, "");
  const PeerFacts some = PeerFacts::parse(R"({"late": "tcp:[::1]:4000", "cores": 7, "colour": "red"})");
  EXPECT_EQ(some.first, "");
  EXPECT_EQ(some.late, "tcp:[::1]:4000");
  EXPECT_EQ(some.cores, "");
}

}  // namespace
}  // namespace distbelief
