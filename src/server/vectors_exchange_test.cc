// Orders on vectors, pushes that are added up, and work that is handed out, through links.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "base/test_deadline.h"
#include "params/lbfgs/lbfgs.h"
#include "params/rules/rules.h"
#include "server/served_job.h"
#include "server/server_vectors.h"

namespace distbelief {
namespace {

constexpr std::size_t kParameters = 5000;
constexpr VectorName kOther = kFirstFree;

class VectorsExchangeTest : public testing::Test {
 protected:
  static ParameterTable make_table() {
    ParameterTable table;
    table.add("weight", {.name = "weight", .shape = Shape{kParameters}});
    table.add("bias", {.name = "bias", .shape = Shape{3}, .decays = false});
    table.add("mean", {.name = "mean", .shape = Shape{10}, .kind = ParameterKind::averaged});
    return table;
  }
  std::vector<float> start() const {
    std::vector<float> values(static_cast<std::size_t>(table_.size()));
    for (const ParameterEntry& entry : table_.entries()) {
      for (std::int64_t i = entry.range.begin; i < entry.range.end; ++i) {
        values[static_cast<std::size_t>(i)] = static_cast<float>(i % 17) * 0.25F - 1;
      }
    }
    return values;
  }
  std::optional<Work> hand_out(const RequestHead& request) {
    asked_ = request.incarnation;
    const std::uint64_t unit = unit_;
    return unit > 0 ? std::optional(Work{.evaluation = 4, .unit = unit, .scale = 0.5}) : std::nullopt;
  }
  /// The gradient that worker 1 pushes, as this unit.
  ServerClient::PushReport push(ServerClient& client, std::span<const float> gradient, std::uint64_t unit,
                                float scale) {
    client.add(std::span(&gradient, 1));
    EXPECT_TRUE(client.push({.id = {unit, 0}, .samples = {0, 0, 1}, .scale = scale}, soon()).outcome.ok());
    return client.wait_pushed(soon());
  }
  double dot(VectorName one, VectorName other) {
    const VectorOrder order = dot_order(one, other);
    EXPECT_TRUE(vectors_.run(std::span(&order, 1), dots_));
    return dots_.at(0);
  }

  const ParameterTable table_ = make_table();
  const std::unique_ptr<UpdateRule> rule_ = make_rule({.name = "sgd"});
  std::atomic<std::uint64_t> unit_ = 0;
  std::atomic<std::uint64_t> asked_ = 0;
  ServedJob job_{table_, *rule_,      start(), 2,
                 2,      {.rate = 1}, {},      [this](const RequestHead& request) {
                   return hand_out(request); }};
  ServerVectors vectors_{{&job_.client(0)}, std::chrono::seconds(30)};
  std::vector<double> dots_;
};

TEST_F(VectorsExchangeTest, OrdersAreCarriedOutOneAfterTheOtherOnAllServers) {
  const std::vector<float> values = start();
  double wanted = 0;
  for (std::int64_t i = 0; i < table_.optimized_size(); ++i) {
    const double value = values[static_cast<std::size_t>(i)];
    wanted += value * (2 * value + 3 * value);
  }
  const std::vector<VectorOrder> orders = {copy_order(kValues, kOther), scale_order(kOther, 2),
                                           axpy_order(3, kValues, kOther), dot_order(kValues, kOther),
                                           dot_order(kOther, kOther)};
  ASSERT_TRUE(vectors_.run(orders, dots_));
  ASSERT_EQ(dots_.size(), 2U);
  EXPECT_DOUBLE_EQ(dots_[0], wanted);
  EXPECT_DOUBLE_EQ(dots_[1], 5 * wanted);
}

TEST_F(VectorsExchangeTest, AFetchBringsWhatOrdersMadeOfTheValues) {
  std::vector<float> values(start().size());
  ServerClient& worker = job_.client(1);
  const auto fetch = [&] {
    worker.begin_fetch();
    ASSERT_TRUE(worker.wait_fetched(soon()).ok());
    worker.take(values);
  };
  fetch();
  EXPECT_EQ(values, start());
  const VectorOrder twice = scale_order(kValues, 2);
  ASSERT_TRUE(vectors_.run(std::span(&twice, 1), dots_));
  fetch();
  for (std::int64_t i = 0; i < table_.size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    EXPECT_EQ(values[at], start()[at] * (i < table_.optimized_size() ? 2.0F : 1.0F));
  }
}

TEST_F(VectorsExchangeTest, EveryPushIsAddedOnceAndNoneOfAnEvaluationThatIsOver) {
  ServerClient& worker = job_.client(1);
  std::vector<float> values(start().size());
  worker.begin_fetch();
  ASSERT_TRUE(worker.wait_fetched(soon()).ok());
  worker.take(values);
  const std::vector<float> ones(values.size(), 1.0F);
  EXPECT_EQ(push(worker, ones, 7, 0.5F).status, ReplyHead::Status::done);
  EXPECT_EQ(push(worker, ones, 7, 0.5F).status, ReplyHead::Status::duplicate);
  EXPECT_EQ(push(worker, ones, 8, 0.5F).status, ReplyHead::Status::done);
  EXPECT_DOUBLE_EQ(dot(kGradient, kGradient), kParameters + 3);  // gaps count for nothing
  const VectorOrder clear = scale_order(kGradient, 0);
  ASSERT_TRUE(vectors_.run(std::span(&clear, 1), 20, dots_));
  EXPECT_EQ(push(worker, ones, 9, 0.5F).status, ReplyHead::Status::duplicate);
  EXPECT_EQ(dot(kGradient, kGradient), 0);
  EXPECT_EQ(push(worker, ones, 20, 2).status, ReplyHead::Status::done);
  EXPECT_DOUBLE_EQ(dot(kGradient, kGradient), 4 * (kParameters + 3));
}

TEST_F(VectorsExchangeTest, LbfgsOverServersReachesAMinimumThatItNeverSees) {
  ServerClient& worker = job_.client(1);
  Lbfgs lbfgs(vectors_, {.weight_decay = 0.1, .tolerance = 1e-4});
  std::vector<float> values(start().size());
  std::vector<float> gradient(values.size());
  Lbfgs::Report report;
  for (std::uint64_t unit = 1; report.status == Lbfgs::Status::going_on && unit < 200; ++unit) {
    const VectorOrder clear = scale_order(kGradient, 0);
    ASSERT_TRUE(vectors_.run(std::span(&clear, 1), unit, dots_));
    worker.begin_fetch();
    ASSERT_TRUE(worker.wait_fetched(soon()).ok());
    worker.take(values);
    double loss = 0;
    for (std::size_t i = 0; i < kParameters; ++i) {
      const double bend = 1 + static_cast<double>(i % 5);
      loss += 0.5 * bend * (values[i] - 1) * (values[i] - 1);
      gradient[i] = static_cast<float>(bend * (values[i] - 1));
    }
    EXPECT_EQ(push(worker, gradient, unit, 1).status, ReplyHead::Status::done);
    report = lbfgs.evaluated(loss);
    ASSERT_TRUE(report.status != Lbfgs::Status::going_on || lbfgs.go_on());
  }
  EXPECT_EQ(report.status, Lbfgs::Status::minimum);
  for (std::size_t i = 0; i < kParameters; ++i) {
    const double bend = 1 + static_cast<double>(i % 5);
    EXPECT_NEAR(values[i], bend / (bend + 0.1), 1e-3);
  }
}

TEST_F(VectorsExchangeTest, WhoWaitsForWorkGetsItWhenThereIsSome) {
  ServerClient& worker = job_.client(1);
  std::optional<Work> work;
  worker.begin_asking(false);
  ASSERT_TRUE(worker.wait_asked(work, soon()).ok());
  EXPECT_FALSE(work);
  worker.begin_asking(true);
  EXPECT_EQ(worker.wait_asked(work, Clock::now() + std::chrono::milliseconds(20)).kind, Outcome::Kind::timed_out);
  unit_ = 9;
  job_.port(0).server_changed();
  ASSERT_TRUE(worker.wait_asked(work, soon()).ok());
  ASSERT_TRUE(work);
  EXPECT_EQ(work->unit, 9U);
  EXPECT_EQ(work->evaluation, 4U);
  EXPECT_EQ(asked_, 2U);  // the incarnation of the second client
}

TEST_F(VectorsExchangeTest, AServerGoesOnFromASavedStateWithItsVectors) {
  const std::vector<VectorOrder> orders = {copy_order(kValues, kOther), scale_order(kOther, 3)};
  ASSERT_TRUE(vectors_.run(orders, dots_));
  const double wanted = dot(kOther, kOther);
  std::vector<std::string> states;
  ASSERT_TRUE(job_.client(0).save(states, soon()).outcome.ok());
  const VectorOrder clear = scale_order(kOther, 0);
  ASSERT_TRUE(vectors_.run(std::span(&clear, 1), dots_));
  ASSERT_EQ(job_.client(0).restore(states, soon()).status, ReplyHead::Status::done);
  EXPECT_EQ(dot(kOther, kOther), wanted);
}

}  // namespace
}  // namespace distbelief
