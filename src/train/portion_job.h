#pragma once

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/check.h"
#include "data/dataset.h"
#include "exec/replica.h"
#include "params/lbfgs/vector_space.h"
#include "params/rules/rules.h"
#include "plan/parameter_layout.h"
#include "server/served_job.h"
#include "server/server_vectors.h"
#include "strategy/portion_worker.h"
#include "train/portion_batches.h"
#include "train/portion_books.h"

namespace distbelief {

/// For tests and benchmarks: Sandblaster without processes. Servers, workers and a leader are threads, with links
/// between them; the leader is whoever calls.
class PortionJob {
 public:
  struct Options {
    int servers = 2;
    int workers = 3;
    std::int64_t batch = 8;
    std::uint64_t seed = 5;
    PortionTable::Options portions = {};
  };
  /// `graph` and `data` are borrowed.
  PortionJob(const Graph& graph, const Dataset& data, const Options& options)
      : graph_(graph),
        data_(data),
        options_(options),
        table_(layout_parameters(graph)),
        start_(static_cast<std::size_t>(table_.size())),
        sampler_(data.size(), options.seed, true),
        books_(options.portions) {
    table_.initialize(options.seed, start_);
    job_.emplace(
        table_, *rule_, start_, options.servers, options.workers + 1, UpdateOptions{}, std::nullopt,
        [this](const RequestHead& request) { return books_.work(request); },
        [this](const RequestHead& request, const ReplyHead& reply, std::string_view words) {
          books_.heard(request, reply, words);
        });
    vectors_.emplace(std::vector{&job_->client(0)}, kPatience);
  }
  ~PortionJob() {
    books_.end();
    job_->port(0).server_changed();
    workers_.clear();
  }
  PortionJob(const PortionJob&) = delete;
  PortionJob& operator=(const PortionJob&) = delete;

  /// One more worker, which calls `begins` first, and falls silent for good after so many units.
  void start_worker(const std::function<void()>& begins = {}, int most_units = 1 << 30) {
    const int number = static_cast<int>(workers_.size()) + 1;
    check(number <= options_.workers, "there are so many workers");
    workers_.emplace_back([this, number, begins, most_units] {
      if (begins) {
        begins();
      }
      work(job_->client(number), most_units);
    });
  }

  /// The mean loss where the parameters are; kGradient is that of it.
  LossSums evaluate() {
    const auto samples = static_cast<std::int64_t>(data_.size());
    const VectorOrder clear = scale_order(kGradient, 0);
    std::vector<double> none;
    check(vectors_->run(std::span(&clear, 1), books_.begin(samples, options_.workers), none), "servers live");
    books_.open();
    job_->port(0).server_changed();
    const PortionBooks::Progress progress = books_.wait(Clock::now() + kPatience);
    check(progress.done, "workers compute all portions");
    return progress.sums;
  }

  VectorSpace& vectors() { return *vectors_; }
  const PortionBooks& books() const { return books_; }
  const ParameterTable& table() const { return table_; }
  const Sampler& sampler() const { return sampler_; }
  /// Where parameters begin.
  const std::vector<float>& start() const { return start_; }

 private:
  static constexpr std::chrono::seconds kPatience{60};

  void work(ServerClient& client, int most_units) {
    Replica replica(graph_, table_, {});
    PortionBatches batches(data_, sampler_, {.batch = options_.batch});
    PortionWorker worker(replica, client, {.patience = kPatience});
    std::optional<Work> work;
    for (int units = 0; units < most_units;) {
      check(worker.next(work, std::chrono::milliseconds(5)).ok(), "servers live");
      if (!work) {
        continue;
      }
      if (work->unit == 0) {
        check(worker.settle().ok(), "servers live");
        return;
      }
      batches.want(work->samples);
      check(worker.begin(*work).ok(), "servers live");
      while (const Batch* batch = batches.next()) {
        worker.add(*batch);
      }
      check(worker.push(*work).ok(), "servers live");
      ++units;
    }
  }

  const Graph& graph_;
  const Dataset& data_;
  const Options options_;
  const ParameterTable table_;
  std::vector<float> start_;
  const Sampler sampler_;
  const std::unique_ptr<UpdateRule> rule_ = make_rule({.name = "sgd"});
  PortionBooks books_;
  std::optional<ServedJob> job_;
  std::optional<ServerVectors> vectors_;
  std::vector<std::jthread> workers_;
};

}  // namespace distbelief
