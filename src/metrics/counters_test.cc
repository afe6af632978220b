#include "metrics/counters.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "base/error.h"

namespace distbelief {
namespace {

using Ids = std::vector<std::uint64_t>;

Ids range(std::uint64_t begin, std::uint64_t end) {
  Ids ids(end - begin);
  std::iota(ids.begin(), ids.end(), begin);
  return ids;
}

TEST(SampleLedger, AGoodEpochAddsUp) {
  SampleLedger ledger(100);
  for (int epoch = 0; epoch < 2; ++epoch) {
    ledger.leased(range(0, 100));
    ledger.applied(range(0, 90));
    ledger.dropped(range(90, 100));
    EXPECT_EQ(ledger.close_epoch(), (SampleAudit{100, 90, 10, 0, 0}));
  }
  EXPECT_EQ(ledger.total(), (SampleAudit{200, 180, 20, 0, 0}));
}

TEST(SampleLedger, FindsWhatWasLostAndWhatCameTwice) {
  SampleLedger ledger(10);
  ledger.leased(range(0, 10));
  ledger.leased(Ids{3});  // its first holder died
  ledger.applied(range(0, 8));
  ledger.applied(Ids{1, 1, 2});
  EXPECT_EQ(ledger.total(), (SampleAudit{10, 8, 0, 0, 3}));
  EXPECT_EQ(ledger.close_epoch(), (SampleAudit{10, 8, 0, 2, 3}));
  EXPECT_EQ(ledger.close_epoch(), SampleAudit{});
}

TEST(SampleLedger, WhatWasAppliedWithoutALeaseShows) {
  SampleLedger ledger(10);
  ledger.applied(Ids{4});
  EXPECT_EQ(ledger.close_epoch(), (SampleAudit{0, 1, 0, 0, 0}));
}

TEST(SampleLedger, WhatIsDroppedAndHandedOutAgainIsLeasedTwice) {
  SampleLedger ledger(10);
  ledger.leased(range(0, 10));
  ledger.returned(range(6, 10));
  ledger.applied(range(0, 6));
  ledger.leased(range(6, 10));
  ledger.returned(range(8, 10));
  ledger.leased(range(8, 10));
  ledger.applied(range(6, 10));
  EXPECT_EQ(ledger.close_epoch(), (SampleAudit{16, 10, 6, 0, 0}));
}

TEST(SampleLedger, ContinuesInTheMiddleOfAnEpoch) {
  SampleLedger first(1001);
  first.leased(range(0, 1001));
  first.applied(range(0, 1001));
  first.close_epoch();
  first.leased(range(0, 800));
  first.applied(range(0, 500));
  first.applied(Ids{7});
  first.dropped(range(500, 510));
  const std::string saved = first.save();
  EXPECT_LT(saved.size(), 500U);
  EXPECT_EQ(SampleLedger::samples_in(saved, "ledger"), 1001U);
  SampleLedger second(1001);
  second.restore(saved, "ledger");
  EXPECT_EQ(second.total(), first.total());
  for (SampleLedger* ledger : {&first, &second}) {
    ledger->applied(range(490, 700));
    EXPECT_EQ(ledger->close_epoch(), (SampleAudit{800, 700, 10, 100, 11}));
  }
}

TEST(SampleLedger, RefusesWhatItDidNotSave) {
  SampleLedger ledger(9);
  ledger.dropped(range(2, 5));
  const std::string good = ledger.save();
  EXPECT_THROW(SampleLedger(10).restore(good, "ledger"), FileError);
  EXPECT_THROW((void)SampleLedger::samples_in(good.substr(0, 9), "ledger"), FileError);
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROW(ledger.restore(good.substr(0, size), "ledger"), FileError);
  }
  EXPECT_THROW(ledger.restore(good + "x", "ledger"), FileError);
  std::string far = good;
  far[good.size() - 9] = 100;  // the id of the last exception
  EXPECT_THROW(ledger.restore(far, "ledger"), FileError);
  EXPECT_EQ(ledger.total(), (SampleAudit{0, 0, 3, 0, 0}));
}

TEST(SampleLedger, AnEpochIsTakenOverWithItsMarks) {
  SampleLedger elsewhere(6);
  elsewhere.leased(range(0, 6));
  elsewhere.applied(range(0, 6));
  elsewhere.close_epoch();
  elsewhere.leased(range(0, 4));
  elsewhere.applied(range(0, 3));
  elsewhere.dropped(range(3, 4));
  EXPECT_TRUE(elsewhere.is_settled(3));
  EXPECT_FALSE(elsewhere.is_settled(4));
  EXPECT_EQ(elsewhere.settled(), 4U);

  SampleLedger ledger(6);
  ledger.add_closed({10, 9, 1, 0, 0});
  ledger.take_over_epoch(elsewhere.save_epoch(), "ledger");
  EXPECT_EQ(ledger.closed(), (SampleAudit{10, 9, 1, 0, 0}));
  EXPECT_EQ(ledger.total(), (SampleAudit{14, 12, 2, 0, 0}));
  ledger.reopen_dropped();
  EXPECT_FALSE(ledger.is_settled(3));
  EXPECT_TRUE(ledger.has_applied(2));
  ledger.leased(range(3, 6));
  ledger.applied(range(3, 6));
  EXPECT_EQ(ledger.close_epoch(), (SampleAudit{7, 6, 1, 0, 0}));
}

TEST(SampleLedger, ThreadsMayCountAtOnce) {
  SampleLedger ledger(4000);
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t part = 0; part < 4; ++part) {
      threads.emplace_back([&ledger, part] {
        for (std::uint64_t at = part * 1000; at < (part + 1) * 1000; at += 100) {
          ledger.leased(range(at, at + 100));
          ledger.applied(range(at, at + 100));
        }
      });
    }
  }
  EXPECT_EQ(ledger.close_epoch(), (SampleAudit{4000, 4000, 0, 0, 0}));
}

}  // namespace
}  // namespace distbelief
