#include "train/whole_state.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "server/parameter_server.h"
#include "train/state_arrays.h"

namespace distbelief {
namespace {

constexpr std::string_view kVectorPrefix = "vector_";  // as RangeVectors names what it shows

/// The slots of one block, as it shows them.
class SlotReader : public StateVisitor {
 public:
  SlotReader(const UpdateRule& rule, WholeState& into, std::int64_t begin) : rule_(rule), into_(into), begin_(begin) {}
  void floats(std::string_view name, std::span<float> values) override {
    if (name.starts_with(kVectorPrefix)) {
      std::vector<float>& vector = (*into_.vectors)[std::string(name)];
      vector.resize(into_.values.size());
      std::ranges::copy(values, vector.begin() + begin_);
      return;
    }
    for (int slot = 0; slot < rule_.slots(); ++slot) {
      if (rule_.slot_name(slot) == name) {
        std::ranges::copy(values, into_.slots.find(name)->second.begin() + begin_);
      }
    }
  }
  void number(std::string_view name, std::uint64_t& value) override {
    if (name == "updates") {  // blocks are of different moments
      into_.updates = std::max(into_.updates, value);
    }
  }
  void numbers(std::string_view /*name*/, std::vector<std::uint64_t>& /*values*/) override {}

 private:
  const UpdateRule& rule_;
  WholeState& into_;
  const std::int64_t begin_;
};

/// As a rule begins.
WholeState fresh_state(const ParameterTable& table, const UpdateRule& rule) {
  WholeState state;
  state.values.resize(static_cast<std::size_t>(table.size()));
  for (int slot = 0; slot < rule.slots(); ++slot) {
    state.slots.emplace(rule.slot_name(slot), std::vector(state.values.size(), rule.initial_slot_value(slot)));
  }
  return state;
}

/// Calls visit(array of `to`, array of `from`) for each that both have.
template <typename To, typename From, typename Visit>
void for_each_array(To& to, From& from, const Visit& visit) {
  visit(to.values, from.values);
  for (auto& [name, floats] : to.slots) {
    visit(floats, from.slots.at(name));
  }
}

}  // namespace

void WholeState::begin_rule_anew() {
  slots.clear();
  updates = 0;
}

WholeState whole_state_of(const std::vector<std::string>& servers, const std::string& source, const PartRuns& parts,
                          const UpdateRule& rule, const std::function<UpdateOptions(std::uint64_t pushes)>& options,
                          bool keeps_vectors) {
  if (servers.empty() || servers.size() % parts.count() != 0) {
    throw FileError(fmt::format("{}: expected the states of servers of {} parts of the network, found {}", source,
                                parts.count(), servers.size()));
  }
  const std::size_t each = servers.size() / parts.count();
  WholeState whole = fresh_state(parts.whole(), rule);
  if (keeps_vectors) {
    whole.vectors.emplace();
  }
  for (std::size_t part = 0; part < parts.count(); ++part) {
    const ParameterTable& table = parts.table(part);
    WholeState own = fresh_state(table, rule);
    if (keeps_vectors) {
      own.vectors.emplace();
    }
    std::set<std::int64_t> seen;
    std::int64_t floats = 0;
    for (std::size_t server = part * each; server < (part + 1) * each; ++server) {
      const BlockVisit take = [&](ParameterShard& block, RangeVectors* vectors) {
        const Range range = block.range();
        if (!seen.insert(range.begin).second) {
          return;
        }
        UpdateOptions flush = options(block.pushes());
        flush.gather = 1;
        if (!block.flush(flush)) {
          throw FileError(source + ": what a server had gathered is not finite");
        }
        floats += range.size();
        (void)block.read(std::span(own.values)
                             .subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.size())));
        SlotReader reader(rule, own, range.begin);
        block.visit_state(reader);
        if (vectors != nullptr) {
          vectors->visit_state(reader);
        }
      };
      for_each_saved_block(servers[server], source, table, rule, keeps_vectors, take);
    }
    if (floats != table.size()) {
      throw FileError(fmt::format("{}: expected {} numbers of part {} of the network, its servers have {}", source,
                                  table.size(), part, floats));
    }
    const auto put = [&](std::vector<float>& to, const std::vector<float>& from) {
      parts.for_each(part, false, [&](std::int64_t in_whole, std::int64_t in_part, std::int64_t count) {
        std::copy_n(from.begin() + in_part, count, to.begin() + in_whole);
      });
    };
    for_each_array(whole, own, put);
    for (const auto& [name, numbers] : own.vectors.value_or(WholeState::Vectors{})) {
      std::vector<float>& vector = (*whole.vectors)[name];
      vector.resize(whole.values.size());
      put(vector, numbers);
    }
    whole.updates = std::max(whole.updates, own.updates);
  }
  return whole;
}

WholeState whole_state_of(const Checkpoint& checkpoint,
                          const std::map<std::string, std::vector<std::uint64_t>>& numbers, const ParameterTable& table,
                          const UpdateRule& rule) {
  WholeState state = fresh_state(table, rule);
  read_named_arrays(table, checkpoint.values(), "", state.values);
  for (auto& [name, floats] : state.slots) {
    read_named_arrays(table, checkpoint.state(), name + "/", floats);
  }
  if (const auto updates = numbers.find("updates"); updates != numbers.end() && !updates->second.empty()) {
    state.updates = updates->second.front();
  }
  return state;
}

WholeState part_of_state(const WholeState& whole, const PartRuns& parts, std::size_t part) {
  WholeState own;
  const auto size = static_cast<std::size_t>(parts.table(part).size());
  own.values.resize(size);
  for (const auto& [name, floats] : whole.slots) {
    own.slots.emplace(name, std::vector<float>(size));
  }
  for_each_array(own, whole, [&](std::vector<float>& to, const std::vector<float>& from) {
    parts.for_each(part, true, [&](std::int64_t in_whole, std::int64_t in_part, std::int64_t count) {
      std::copy_n(from.begin() + in_whole, count, to.begin() + in_part);
    });
  });
  if (whole.vectors) {
    own.vectors.emplace();
    for (const auto& [name, floats] : *whole.vectors) {
      std::vector<float>& vector = own.vectors->emplace(name, std::vector<float>(size)).first->second;
      parts.for_each(part, false, [&, &from = floats](std::int64_t in_whole, std::int64_t in_part, std::int64_t count) {
        std::copy_n(from.begin() + in_whole, count, vector.begin() + in_part);
      });
    }
  }
  own.updates = whole.updates;
  return own;
}

void StateFiller::numbers(std::string_view name, std::vector<std::uint64_t>& values) {
  if (name == "vectors" && state_.vectors) {
    values.clear();
    for (const auto& [vector, floats] : *state_.vectors) {
      values.push_back(std::stoull(vector.substr(kVectorPrefix.size())));
    }
  }
}

void StateFiller::floats(std::string_view name, std::span<float> values) {
  const auto& arrays = state_.vectors && name.starts_with(kVectorPrefix) ? *state_.vectors : state_.slots;
  if (const auto found = arrays.find(name); found != arrays.end()) {
    check(found->second.size() >= static_cast<std::size_t>(begin_) + values.size(), "a slot of the same flat space");
    std::copy_n(found->second.begin() + begin_, values.size(), values.begin());
  }
}

}  // namespace distbelief
