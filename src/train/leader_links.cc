#include "train/leader_links.h"

#include <algorithm>
#include <optional>

#include "base/check.h"

namespace distbelief {
namespace {

/// Sets how many pushes a block has.
class PushCounter : public StateVisitor {
 public:
  explicit PushCounter(std::uint64_t pushes) : pushes_(pushes) {}
  void floats(std::string_view /*name*/, std::span<float> /*values*/) override {}
  void number(std::string_view name, std::uint64_t& value) override { value = name == "pushes" ? pushes_ : value; }
  void numbers(std::string_view /*name*/, std::vector<std::uint64_t>& /*values*/) override {}

 private:
  const std::uint64_t pushes_;
};

}  // namespace

LeaderLinks::LeaderLinks(ServedLinks& links, const ParameterTable& whole, std::vector<const ParameterTable*> parts)
    : links_(links), is_cut_(!parts.empty()), parts_(whole, std::move(parts)) {
  for (std::size_t part = 0; is_cut_ && part < parts_.count(); ++part) {
    values_.emplace_back(static_cast<std::size_t>(parts_.table(part).size()));
  }
}

LeaderLinks::Report LeaderLinks::order(RequestHead::Kind kind, float scale, Clock::time_point deadline) {
  Report worst;
  for (std::size_t part = 0; part < parts_.count(); ++part) {
    const Report report = links_.leader(part).order(kind, scale, deadline);
    worst.status = std::max(worst.status, report.status);
    if (!report.outcome.ok()) {
      return report;
    }
  }
  return worst;
}

LeaderLinks::Report LeaderLinks::set_values(std::span<const float> values, Clock::time_point deadline) {
  if (!is_cut_) {
    return links_.leader().set_values(values, deadline);
  }
  Report report;
  for (std::size_t part = 0; part < parts_.count() && report.outcome.ok(); ++part) {
    std::vector<float>& own = values_[part];
    parts_.for_each(part, true, [&](std::int64_t whole, std::int64_t here, std::int64_t count) {
      std::copy_n(values.data() + whole, count, own.data() + here);
    });
    report = links_.leader(part).set_values(own, deadline);
  }
  return report;
}

LeaderLinks::Report LeaderLinks::set_state(const WholeState& state, const UpdateRule& rule, std::uint64_t pushes,
                                           Clock::time_point deadline) {
  std::vector<std::string> states;
  for (std::size_t part = 0; part < parts_.count(); ++part) {
    const WholeState own = is_cut_ ? part_of_state(state, parts_, part) : WholeState{};
    const WholeState& begin = is_cut_ ? own : state;
    for (int server = 0; server < links_.shelves(); ++server) {
      ParameterServer blocks(
          parts_.table(part), links_.map(part), links_.blocks_of(part, server), rule, begin.values,
          {.update = [](std::uint64_t, int) { return UpdateOptions{}; }, .keeps_vectors = begin.vectors.has_value()});
      blocks.visit_blocks([&](ParameterShard& block, RangeVectors* vectors) {
        StateFiller filler(begin, block.range().begin);
        block.visit_state(filler);
        if (vectors != nullptr) {
          vectors->visit_state(filler);
        }
        PushCounter counter(pushes);
        block.visit_state(counter);
      });
      std::optional<std::string> saved = blocks.save();
      if (!saved) {
        return {.status = ReplyHead::Status::nonfinite};
      }
      states.push_back(std::move(*saved));
    }
  }
  return restore(states, deadline);
}

Outcome LeaderLinks::fetch(std::span<float> values, Clock::time_point deadline) {
  for (std::size_t part = 0; part < parts_.count(); ++part) {
    links_.leader(part).begin_fetch();
  }
  Outcome first;
  for (std::size_t part = 0; part < parts_.count(); ++part) {
    const Outcome outcome = links_.leader(part).wait_fetched(deadline);
    first = first.ok() ? outcome : first;
  }
  if (!first.ok()) {
    return first;
  }
  if (!is_cut_) {
    links_.leader().take(values);
    return {};
  }
  for (std::size_t part = 0; part < parts_.count(); ++part) {
    std::vector<float>& own = values_[part];
    links_.leader(part).take(own);
    parts_.for_each(part, false, [&](std::int64_t whole, std::int64_t here, std::int64_t count) {
      std::copy_n(own.data() + here, count, values.data() + whole);
    });
  }
  return {};
}

LeaderLinks::Report LeaderLinks::save(std::vector<std::string>& states, Clock::time_point deadline) {
  states.clear();
  Report report;
  for (std::size_t part = 0; part < parts_.count() && report.outcome.ok(); ++part) {
    std::vector<std::string> own;
    report = links_.leader(part).save(own, deadline);
    if (report.status == ReplyHead::Status::nonfinite) {
      return report;
    }
    std::ranges::move(own, std::back_inserter(states));
  }
  return report;
}

LeaderLinks::Report LeaderLinks::restore(const std::vector<std::string>& states, Clock::time_point deadline) {
  check(states.size() % parts_.count() == 0, "states of the same servers for each part");
  const auto servers = static_cast<std::ptrdiff_t>(states.size() / parts_.count());
  Report worst;
  for (std::size_t part = 0; part < parts_.count(); ++part) {
    const auto begin = states.begin() + static_cast<std::ptrdiff_t>(part) * servers;
    const Report report = links_.leader(part).restore({begin, begin + servers}, deadline);
    worst.status = std::max(worst.status, report.status);
    if (!report.outcome.ok()) {
      return report;
    }
  }
  return worst;
}

ServerClient::Traffic LeaderLinks::traffic() const {
  ServerClient::Traffic sum;
  for (const ServerClient* client : clients()) {
    const ServerClient::Traffic own = client->traffic();
    sum.pushed_bytes += own.pushed_bytes;
    sum.fetched_bytes += own.fetched_bytes;
    sum.order_bytes += own.order_bytes;
  }
  return sum;
}

std::vector<ServerClient*> LeaderLinks::clients() const {
  std::vector<ServerClient*> all;
  for (std::size_t part = 0; part < parts_.count(); ++part) {
    all.push_back(&links_.leader(part));
  }
  return all;
}

}  // namespace distbelief
