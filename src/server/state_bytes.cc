#include "server/state_bytes.h"

#include <fmt/format.h>

#include <cstring>

#include "base/bytes.h"
#include "base/error.h"

namespace distbelief {

void StateWriter::begin(std::string_view name, std::uint64_t count) {
  append_little_endian(bytes_, static_cast<std::uint32_t>(name.size()));
  bytes_ += name;
  append_little_endian(bytes_, count);
}

void StateWriter::floats(std::string_view name, std::span<float> values) {
  begin(name, values.size());
  bytes_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

void StateWriter::number(std::string_view name, std::uint64_t& value) {
  begin(name, 1);
  append_little_endian(bytes_, value);
}

void StateWriter::numbers(std::string_view name, std::vector<std::uint64_t>& values) {
  begin(name, values.size());
  bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(std::uint64_t));
}

void StateReader::fail(std::string_view complaint) const {
  throw FileError(fmt::format("{}: expected the state of a parameter server: {}", source_, complaint));
}

std::string_view StateReader::take(std::uint64_t count) {
  if (count > bytes_.size()) {
    fail("it ends too early");
  }
  const std::string_view taken = bytes_.substr(0, count);
  bytes_.remove_prefix(count);
  return taken;
}

std::uint64_t StateReader::begin(std::string_view name, std::uint64_t bytes) {
  const auto length = read_little_endian<std::uint32_t>(take(sizeof(std::uint32_t)).data());
  if (const std::string_view found = take(length); found != name) {
    fail(fmt::format("it has '{}' where '{}' should be", found.substr(0, 40), name));
  }
  const auto count = read_little_endian<std::uint64_t>(take(sizeof(std::uint64_t)).data());
  if (count > bytes_.size() / bytes) {
    fail("it ends too early");
  }
  return count;
}

void StateReader::floats(std::string_view name, std::span<float> values) {
  if (const std::uint64_t count = begin(name, sizeof(float)); count != values.size()) {
    fail(fmt::format("it has {} numbers of '{}', not {}", count, name, values.size()));
  }
  const std::string_view from = take(values.size_bytes());
  std::memcpy(values.data(), from.data(), from.size());
}

void StateReader::number(std::string_view name, std::uint64_t& value) {
  if (begin(name, sizeof(value)) != 1) {
    fail(fmt::format("'{}' is not one number", name));
  }
  value = read_little_endian<std::uint64_t>(take(sizeof(value)).data());
}

void StateReader::numbers(std::string_view name, std::vector<std::uint64_t>& values) {
  values.resize(begin(name, sizeof(std::uint64_t)));
  const std::string_view from = take(values.size() * sizeof(std::uint64_t));
  if (!from.empty()) {
    std::memcpy(values.data(), from.data(), from.size());
  }
}

void StateReader::expect_end() const {
  if (!bytes_.empty()) {
    fail(fmt::format("{} bytes too many", bytes_.size()));
  }
}

}  // namespace distbelief
