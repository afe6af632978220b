#include "train/served_books.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace distbelief {
namespace {

constexpr std::int64_t kUnit = 4;

class Books : public testing::Test {
 protected:
  const Sampler sampler_{16, 1, true};
  ServedBooks books_{sampler_, {.epochs = 2, .unit_samples = kUnit}};

  static UnitReport unit(std::uint64_t lease, std::uint64_t seq, std::int64_t epoch, std::int64_t first) {
    return {.id = {lease, seq}, .samples = {epoch, first, kUnit}, .loss = 2, .correct = 3, .staleness = 1};
  }
  static void report(ServedBooks& books, const UnitReport& done) {
    books.heard({.kind = RequestHead::Kind::report, .done = done}, {}, "");
  }
  static SavedLease lease(std::uint64_t id, std::int64_t epoch, std::int64_t first, std::int64_t count,
                          std::uint64_t next_push) {
    return {.id = id, .samples = {epoch, first, count}, .next_push = next_push};
  }
  /// Goes on with what was saved.
  LeaseTable::Options resumed(ServedBooks& books, const std::vector<SavedLeases>& servers) {
    books.restore(books_.save(), "file");
    return books.go_on(servers);
  }
  /// What a plan still leases, an epoch and its positions after the other, each once.
  static void expect_rest(const LeaseTable::Options& plan, const std::vector<std::vector<bool>>& done) {
    LeaseTable table(plan);
    std::vector<std::vector<bool>> seen = done;
    while (true) {
      const LeaseTable::Answer answer = table.request(1, 8);
      if (!std::holds_alternative<Lease>(answer)) {
        break;
      }
      const Lease& lease = std::get<Lease>(answer);
      for (std::int64_t i = static_cast<std::int64_t>(lease.next_push) * kUnit; i < lease.count; ++i) {
        auto place = seen.at(static_cast<std::size_t>(lease.epoch)).begin() + lease.first + i;
        EXPECT_FALSE(*place) << "epoch " << lease.epoch << " position " << lease.first + i;
        *place = true;
      }
    }
    for (const std::vector<bool>& epoch : seen) {
      EXPECT_EQ(std::count(epoch.begin(), epoch.end(), true), 16);
    }
  }
};

TEST_F(Books, SeveralUnitsMayComeInOnePush) {
  UnitReport done = unit(1, 0, 0, 0);
  done.id.count = 3;
  done.samples.count = 3 * kUnit;
  report(books_, done);
  report(books_, done);  // is told once
  EXPECT_EQ(books_.take().units, 3U);
  report(books_, unit(1, 3, 0, 3 * kUnit));
  const ServedBooks::News news = books_.take();
  EXPECT_EQ(news.units, 4U);
  EXPECT_EQ(news.closed.size(), 1U);
  EXPECT_EQ(books_.staleness().count, 4U);
  EXPECT_EQ(books_.total(), (SampleAudit{16, 16, 0, 0, 0}));
}

TEST_F(Books, ThatWereACopyBeforeBecomeOneAgainWithNothingOfTheFirst) {
  ServedBooks copy(sampler_, {.epochs = 2, .unit_samples = kUnit});
  report(books_, unit(1, 0, 0, 0));
  copy.become(books_.copy());  // the first epoch is open
  for (std::uint64_t i = 1; i < 5; ++i) {
    report(books_, unit(1, i, static_cast<std::int64_t>(i / 4), static_cast<std::int64_t>(i % 4) * kUnit));
  }
  copy.become(books_.copy());  // and now only the second
  EXPECT_EQ(copy.total(), books_.total());
  EXPECT_EQ(copy.copy(), books_.copy());
}

TEST_F(Books, WhatServersRefusedIsDroppedAndLeasedAgain) {
  for (std::uint64_t i = 0; i < 4; ++i) {
    UnitReport late = unit(1, i, 0, static_cast<std::int64_t>(i) * kUnit);
    late.late = 1;
    books_.heard({.kind = RequestHead::Kind::push, .push = late.id, .samples = late.samples},
                 {.status = ReplyHead::Status::late}, "");
    report(books_, late);
    EXPECT_TRUE(books_.take().closed.empty());
    late.late = 0;
    books_.heard({.kind = RequestHead::Kind::push, .push = late.id, .samples = late.samples}, {}, "");
    report(books_, late);
  }
  EXPECT_EQ(books_.take().closed.size(), 1U);
  EXPECT_EQ(books_.total(), (SampleAudit{32, 16, 16, 0, 0}));
}

TEST_F(Books, WhatIsAppliedIsNotDroppedByWhoWasTooSlow) {
  UnitReport done = unit(1, 0, 0, 0);
  report(books_, done);
  done.late = 1;
  report(books_, done);
  EXPECT_EQ(books_.total(), (SampleAudit{kUnit, kUnit, 0, 0, 0}));
}

TEST_F(Books, CloseAnEpochWhenAllOfItIsApplied) {
  for (std::uint64_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(books_.take().closed.empty());
    report(books_, unit(1, i, 0, static_cast<std::int64_t>(i) * kUnit));
  }
  const ServedBooks::News news = books_.take();
  ASSERT_EQ(news.closed.size(), 1U);
  EXPECT_EQ(news.closed[0].sums.rows, 16);
  EXPECT_EQ(news.closed[0].sums.correct, 12);
  EXPECT_EQ(books_.total().applied, 16U);
  EXPECT_EQ(books_.staleness().count, 4U);
}

TEST_F(Books, CountAUnitOnceHoweverOftenItIsReported) {
  report(books_, unit(1, 0, 0, 0));
  report(books_, unit(1, 0, 0, 0));
  EXPECT_EQ(books_.total().applied, 4U);
  EXPECT_EQ(books_.total().duplicated, 0U);
}

TEST_F(Books, ComeBackWithAllThatTheyHad) {
  report(books_, unit(1, 0, 0, 0));
  report(books_, unit(2, 0, 0, 8));
  ServedBooks again(sampler_, {.epochs = 2, .unit_samples = kUnit});
  again.restore(books_.save(), "file");
  EXPECT_EQ(again.total().applied, 8U);
  EXPECT_EQ(again.staleness().count, 2U);
  EXPECT_EQ(again.open_sums().rows, 8);
  EXPECT_EQ(again.take().units, 2U);
  report(again, unit(1, 0, 0, 0));
  EXPECT_EQ(again.total().duplicated, 0U);
}

TEST_F(Books, TellAgainOfAnEpochThatWasNotEvaluated) {
  for (std::uint64_t i = 0; i < 4; ++i) {
    report(books_, unit(1, i, 0, static_cast<std::int64_t>(i) * kUnit));
  }
  EXPECT_EQ(books_.take().closed.size(), 1U);
  ServedBooks again(sampler_, {.epochs = 2, .unit_samples = kUnit});
  again.restore(books_.save(), "file");
  EXPECT_EQ(again.take().closed.size(), 1U);
  books_.evaluated();
  ServedBooks done(sampler_, {.epochs = 2, .unit_samples = kUnit});
  done.restore(books_.save(), "file");
  EXPECT_TRUE(done.take().closed.empty());
}

TEST_F(Books, RefuseUnitsOfAnotherSizeAndGarbage) {
  ServedBooks other(sampler_, {.epochs = 2, .unit_samples = 2 * kUnit});
  EXPECT_THROW(other.restore(books_.save(), "file"), InputError);
  ServedBooks same(sampler_, {.epochs = 2, .unit_samples = kUnit});
  const std::string saved = books_.save();
  EXPECT_THROW(same.restore(saved.substr(0, saved.size() - 3), "file"), FileError);
  EXPECT_THROW(same.restore("garbage", "file"), FileError);
  ServedBooks seeded(sampler_, {.epochs = 2, .unit_samples = kUnit, .seed = 2});
  EXPECT_THROW(seeded.restore(saved, "file"), InputError);
  EXPECT_THROW(resumed(same, {{.low_water = 1, .leases = {lease(1, 0, 12, 8, 0)}}}), FileError);
}

TEST_F(Books, RefuseToGoOnBeforeAnEpochThatHasBegun) {
  report(books_, unit(4, 0, 1, 4));
  ServedBooks shorter(sampler_, {.epochs = 1, .unit_samples = kUnit});
  EXPECT_THROW(shorter.restore(books_.save(), "file"), InputError);
}

TEST_F(Books, OfNothingGoOnAtTheBeginning) {
  ServedBooks again(sampler_, {.epochs = 2, .unit_samples = kUnit});
  const LeaseTable::Options plan = resumed(again, {{}, {}});
  EXPECT_EQ(plan.first_epoch, 0);
  EXPECT_EQ(plan.first_position, 0);
  EXPECT_TRUE(plan.returned.empty());
}

TEST_F(Books, LeaseAgainWhatSomeServerLacks) {
  report(books_, unit(1, 0, 0, 0));
  // Lease 1: one server has both units, the other one. Lease 2: nobody has any of it. Lease 3: one server has a unit.
  const std::vector<SavedLeases> servers = {{.low_water = 1, .leases = {lease(1, 0, 0, 8, 2), lease(3, 0, 12, 4, 1)}},
                                            {.low_water = 1, .leases = {lease(1, 0, 0, 8, 1)}}};
  ServedBooks again(sampler_, {.epochs = 2, .unit_samples = kUnit});
  const LeaseTable::Options plan = resumed(again, servers);
  EXPECT_EQ(again.total().applied, 4U);
  EXPECT_EQ(plan.first_epoch, 1);
  EXPECT_EQ(plan.first_position, 0);
  std::vector<std::vector<bool>> done(2, std::vector<bool>(16));
  std::fill_n(done[0].begin(), 4, true);
  expect_rest(plan, done);
}

TEST_F(Books, TakeInWhatEveryServerHasAndNobodyReported) {
  const std::vector<SavedLeases> servers = {
      {.low_water = 1, .leases = {lease(1, 0, 0, 8, 2), lease(2, 0, 8, 4, 0)}},
      {.low_water = 2, .leases = {}}};  // lease 1 was done there before anybody looked
  ServedBooks again(sampler_, {.epochs = 2, .unit_samples = kUnit});
  const LeaseTable::Options plan = resumed(again, servers);
  EXPECT_EQ(again.total().applied, 8U);
  EXPECT_EQ(again.total().duplicated, 0U);
  EXPECT_EQ(plan.first_epoch, 0);
  EXPECT_EQ(plan.first_position, 12);
  EXPECT_GT(plan.first_id, 2U);
  std::vector<std::vector<bool>> done(2, std::vector<bool>(16));
  std::fill_n(done[0].begin(), 8, true);
  expect_rest(plan, done);
}

TEST_F(Books, WhatIsHeldIsLeftToWhoHoldsItWhenACoordinatorAsks) {
  report(books_, unit(4, 0, 0, 12));
  // Lease 1 was a dead worker's, 2 is held by one that lives and has pushed it but not said so, 3 was given to nobody's
  // knowledge.
  const SavedLeases server = {.leases = {lease(1, 0, 0, 4, 1), lease(2, 0, 4, 4, 1), lease(4, 0, 12, 4, 1)}};
  const std::vector<Lease> held = {{.id = 2, .epoch = 0, .first = 4, .count = 4}};
  for (int asked = 0; asked < 2; ++asked) {  // once more changes nothing
    const LeaseTable::Options plan = books_.go_on({server, server}, held, 100);
    EXPECT_EQ(books_.total().applied, 8U);  // of leases 1 and 4
    ASSERT_EQ(plan.returned.size(), 1U);
    EXPECT_EQ(plan.returned[0].id, 100U);
    EXPECT_EQ(plan.returned[0].first, 8);
    std::vector<std::vector<bool>> done(2, std::vector<bool>(16));
    for (std::size_t place = 0; place < 16; ++place) {
      done[0][place] = place < 8 || place >= 12;
    }
    expect_rest(plan, done);
  }
  report(books_, unit(2, 0, 0, 4));
  EXPECT_EQ(books_.total().applied, 12U);
  EXPECT_EQ(books_.total().duplicated, 0U);
}

TEST_F(Books, GoOnInSeveralEpochsAtOnce) {
  report(books_, unit(1, 0, 0, 0));
  report(books_, unit(4, 0, 1, 4));
  ServedBooks again(sampler_, {.epochs = 2, .unit_samples = kUnit});
  const LeaseTable::Options plan = resumed(again, {{.low_water = 2, .leases = {lease(4, 1, 4, 4, 1)}}});
  std::vector<std::vector<bool>> done(2, std::vector<bool>(16));
  std::fill_n(done[0].begin(), 4, true);
  std::fill_n(done[1].begin() + 4, 4, true);
  EXPECT_EQ(plan.first_epoch, 1);
  EXPECT_EQ(plan.first_position, 8);
  expect_rest(plan, done);
}

TEST_F(Books, AnotherKindOfRunHearsWhichSamplesAreDone) {
  // Of epoch 0 units 0 and 2 are done, of epoch 1 unit 3, in other leases.
  report(books_, unit(1, 0, 0, 0));
  report(books_, unit(2, 0, 0, 8));
  report(books_, unit(3, 0, 1, 12));
  const RunProgress progress = books_.progress();
  ASSERT_EQ(progress.epochs.size(), 2U);
  EXPECT_EQ(progress.epochs[0].sums.rows, 8);
  EXPECT_EQ(progress.closed, SampleAudit{});
  for (const auto& [number, done] :
       {std::pair{0U, std::vector<PositionRun>{{0, 4}, {8, 4}}}, std::pair{1U, std::vector<PositionRun>{{12, 4}}}}) {
    SampleLedger ledger(16);
    ledger.restore(progress.epochs[number].ledger, "ledger");
    EXPECT_EQ(settled_positions(sampler_, number, ledger), done);
    Sampler sampler = sampler_;
    put_first(sampler, progress.epochs[number]);
    EXPECT_EQ(sampler.done(number), ledger.settled());
  }
  const std::vector<EpochProgress> again = epochs_from(epochs_text(progress.epochs), "text");
  ASSERT_EQ(again.size(), 2U);
  EXPECT_EQ(again[1].number, 1U);
  EXPECT_EQ(again[1].ledger, progress.epochs[1].ledger);
  EXPECT_EQ(again[1].sums.loss, progress.epochs[1].sums.loss);
  EXPECT_THROW((void)epochs_from(epochs_text(progress.epochs).substr(0, 90), "text"), FileError);
}

TEST_F(Books, BeginWhereAnotherKindOfRunStoodWhateverItsBatches) {
  // 5 samples of epoch 0 are applied and one is dropped, in the order; of epoch 1, 3 somewhere.
  std::vector<std::uint64_t> ids(16);
  sampler_.fill(0, 0, ids);
  SampleLedger first(16);
  first.leased(std::span(ids).first(6));
  first.applied(std::span(ids).first(5));
  first.dropped(std::span(ids).subspan(5, 1));
  sampler_.fill(1, 0, ids);
  SampleLedger second(16);
  second.leased(std::span(ids).subspan(7, 3));
  second.applied(std::span(ids).subspan(7, 3));
  ServedBooks books(sampler_, {.epochs = 2, .unit_samples = kUnit});
  const LeaseTable::Options plan = books.begin_at(
      {.closed = {}, .epochs = {{0, first.save_epoch(), {1, 2, 5}}, {1, second.save_epoch(), {1, 2, 3}}}}, 40);
  std::vector<std::vector<bool>> done(2, std::vector<bool>(16));
  std::fill_n(done[0].begin(), 5, true);
  std::fill_n(done[1].begin() + 7, 3, true);
  expect_rest(plan, done);
  const ServedBooks::News news = books.take();
  EXPECT_EQ(news.units, 40U);
  EXPECT_EQ(news.samples, 8U);
  EXPECT_EQ(books.total(), (SampleAudit{9, 8, 1, 0, 0}));
  EXPECT_EQ(books.open_sums().rows, 5);
}

TEST_F(Books, EpochsThatAreDoneButNotEvaluatedAreToldAgain) {
  for (std::uint64_t i = 0; i < 4; ++i) {
    report(books_, unit(i + 1, 0, 0, static_cast<std::int64_t>(i) * kUnit));
  }
  const RunProgress progress = books_.progress();
  ASSERT_EQ(progress.epochs.size(), 1U);
  EXPECT_EQ(progress.epochs[0].ledger, "");
  EXPECT_EQ(progress.closed.applied, 16U);
  Sampler sampler = sampler_;
  put_first(sampler, progress.epochs[0]);
  EXPECT_EQ(sampler.done(0), 16U);
  ServedBooks books(sampler_, {.epochs = 2, .unit_samples = kUnit});
  expect_rest(books.begin_at(progress, 4), {std::vector<bool>(16, true), std::vector<bool>(16)});
  const ServedBooks::News news = books.take();
  ASSERT_EQ(news.closed.size(), 1U);
  EXPECT_EQ(news.closed[0].sums.rows, 16);
  EXPECT_EQ(news.samples, 16U);
}

TEST_F(Books, WhoKeepsACopyKnowsWhoHasEnded) {
  report(books_, unit(1, 0, 0, 0));
  for (int times = 0; times < 2; ++times) {  // to a leader that died, and to the next
    books_.heard({.kind = RequestHead::Kind::leave, .incarnation = 7}, {}, "");
  }
  ServedBooks copy(sampler_, {.epochs = 2, .unit_samples = kUnit});
  copy.become(books_.copy());
  EXPECT_EQ(copy.staying({5, 7, 9}), 2);
  EXPECT_EQ(copy.save(), books_.save());
  EXPECT_THROW(copy.become("none"), FileError);
}

}  // namespace
}  // namespace distbelief
