#include "params/parameter_table.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/nearest_name.h"
#include "base/random.h"
#include "params/fill_random.h"
#include "params/parameter_part.h"

namespace distbelief {

namespace {

std::int64_t aligned(std::int64_t floats) {
  return (floats + ParameterTable::kAlignment - 1) / ParameterTable::kAlignment * ParameterTable::kAlignment;
}

/// FNV-1a.
class Hash {
 public:
  void add(std::string_view text) {
    for (const char letter : text) {
      add_byte(static_cast<unsigned char>(letter));
    }
    add_byte(0);
  }
  void add(std::uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) {
      add_byte(static_cast<unsigned char>(number >> shift));
    }
  }
  std::uint64_t value() const { return value_; }

 private:
  void add_byte(unsigned char byte) { value_ = (value_ ^ byte) * 0x100000001b3U; }
  std::uint64_t value_ = 0xcbf29ce484222325U;
};

}  // namespace

void ParameterTable::add(std::string name, ParameterSpec spec) {
  if (index_.contains(name)) {
    throw InputError(fmt::format("parameter '{}' exists twice; layers need different names", name));
  }
  const std::int64_t elements = spec.shape.elements();
  const std::int64_t room = aligned(elements);
  std::int64_t begin = optimized_size_;
  if (spec.kind == ParameterKind::optimized) {
    for (ParameterEntry& entry : entries_) {
      if (entry.spec.kind == ParameterKind::averaged) {
        entry.range = {entry.range.begin + room, entry.range.end + room};
      }
    }
    optimized_size_ += room;
  } else {
    begin += averaged_size_;
    averaged_size_ += room;
  }
  index_.emplace(name, entries_.size());
  Shape shape = spec.shape;
  entries_.push_back({std::move(name), {begin, begin + elements}, std::move(shape), std::move(spec), false});
}

int ParameterTable::freeze(std::string_view pattern) {
  int matched = 0;
  for (ParameterEntry& entry : entries_) {
    if (matches_pattern(pattern, entry.name)) {
      entry.frozen = true;
      ++matched;
    }
  }
  if (matched == 0) {
    const std::string example = entries_.empty() ? "" : fmt::format(", such as '{}'", entries_.front().name);
    throw InputError(fmt::format("freeze: no parameter matches '{}'; expected a name{}, or a pattern with * and ?",
                                 pattern, example));
  }
  return matched;
}

const ParameterEntry* ParameterTable::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

const ParameterEntry& ParameterTable::at(std::string_view name) const {
  const ParameterEntry* entry = find(name);
  if (entry == nullptr) {
    const std::vector<std::string_view> names = [&] {
      std::vector<std::string_view> all;
      for (const ParameterEntry& known : entries_) {
        all.push_back(known.name);
      }
      return all;
    }();
    throw InputError(
        fmt::format("the model has no parameter '{}'; the nearest is '{}'", name, nearest_name(name, names)));
  }
  return *entry;
}

std::int64_t ParameterTable::parameter_count() const {
  std::int64_t count = 0;
  for (const ParameterEntry& entry : entries_) {
    count += entry.spec.kind == ParameterKind::optimized ? entry.range.size() : 0;
  }
  return count;
}

void ParameterTable::initialize(std::uint64_t seed, std::span<float> values) const {
  check(static_cast<std::int64_t>(values.size()) == size(), "initialize() needs memory for the whole space");
  for (const ParameterEntry& entry : entries_) {
    initialize(seed, entry, values);
    std::fill_n(values.data() + entry.range.end, aligned(entry.range.size()) - entry.range.size(), 0.0F);
  }
}

void ParameterTable::initialize(std::uint64_t seed, const ParameterEntry& entry, std::span<float> values) const {
  const auto own =
      values.subspan(static_cast<std::size_t>(entry.range.begin), static_cast<std::size_t>(entry.range.size()));
  const CounterRandom random(seed, RandomUse::initialize);
  Hash name;
  name.add(entry.name);
  const std::uint64_t stream = (name.value() ^ (name.value() >> 48)) & 0xffffffffffffU;
  const Initializer& init = entry.spec.init;
  const auto for_runs = [&](const auto& fill) {  // a part has the numbers that it would have in the whole
    for_each_run(entry.spec, 0, entry.spec.whole_shape().elements(),
                 [&](std::int64_t whole, std::int64_t part, std::int64_t count) {
                   fill(own.subspan(static_cast<std::size_t>(part), static_cast<std::size_t>(count)), whole);
                 });
  };
  switch (init.kind) {
    case Initializer::Kind::zeros:
      std::fill(own.begin(), own.end(), 0.0F);
      break;
    case Initializer::Kind::ones:
      std::fill(own.begin(), own.end(), 1.0F);
      break;
    case Initializer::Kind::uniform:
      for_runs([&](std::span<float> run, std::int64_t first) { fill_uniform(random, stream, init.scale, run, first); });
      break;
    case Initializer::Kind::normal:
      for_runs([&](std::span<float> run, std::int64_t first) { fill_normal(random, stream, init.scale, run, first); });
      break;
  }
}

std::uint64_t ParameterTable::digest() const {
  Hash hash;
  for (const ParameterEntry& entry : entries_) {
    hash.add(entry.name);
    hash.add(static_cast<std::uint64_t>(entry.spec.kind));
    hash.add(static_cast<std::uint64_t>(entry.shape.rank()));
    for (const std::int64_t size : entry.shape.dims()) {
      hash.add(static_cast<std::uint64_t>(size));
    }
  }
  return hash.value();
}

bool matches_pattern(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;  // the last '*' seen, and where the text it stands for ends
  std::size_t taken = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++taken;
    } else {
      return false;
    }
  }
  return std::all_of(pattern.begin() + static_cast<std::ptrdiff_t>(p), pattern.end(), [](char c) { return c == '*'; });
}

}  // namespace distbelief
