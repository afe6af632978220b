#include "metrics/event_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"

namespace distbelief {
namespace {

enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void append_varint(std::string& out, std::uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

void append_key(std::string& out, int field, Wire wire) {
  append_varint(out, static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire));
}

void append_bytes(std::string& out, int field, std::string_view bytes) {
  append_key(out, field, Wire::bytes);
  append_varint(out, bytes.size());
  out.append(bytes);
}

// message Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5;
//                 SessionLog session_log = 7; }
std::string event_head(double wall_time, std::int64_t step) {
  std::string event;
  append_key(event, 1, Wire::fixed64);
  append_little_endian(event, wall_time);
  append_key(event, 2, Wire::varint);
  append_varint(event, static_cast<std::uint64_t>(step));
  return event;
}

// message Summary { message Value { string tag = 1; float simple_value = 2; } repeated Value value = 1; }
std::string summary_value(std::string_view tag, double number) {
  std::string value;
  append_bytes(value, 1, tag);
  append_key(value, 2, Wire::fixed32);
  append_little_endian(value, static_cast<float>(number));
  return value;
}

/// TFRecord masks its checksums, so that a checksum of bytes that hold a checksum stays good.
std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

std::string record_of(std::string_view event) {
  std::string length;
  append_little_endian(length, static_cast<std::uint64_t>(event.size()));
  std::string record = length;
  append_little_endian(record, masked_crc(length));
  record.append(event);
  append_little_endian(record, masked_crc(event));
  return record;
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& folder, std::string_view host, double wall_time,
                     std::int64_t first_step) {
  path_ = folder / fmt::format("events.out.tfevents.{:010}.{}.{}", static_cast<std::int64_t>(wall_time), host,
                               static_cast<std::int64_t>(::getpid()));
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) {
    throw FileError(fmt::format("{}: cannot create: {}", path_.string(), std::strerror(errno)));
  }
  std::string version = event_head(wall_time, 0);
  append_bytes(version, 3, "brain.Event:2");

  std::string start;  // message SessionLog { enum SessionStatus { START = 1; } SessionStatus status = 1; }
  append_key(start, 1, Wire::varint);
  append_varint(start, 1);
  std::string session = event_head(wall_time, first_step);
  append_bytes(session, 7, start);
  head_ = record_of(version) + record_of(session);
  try {
    write("");
  } catch (const FileError&) {
    // as long as the disk is full; it comes with the first event
  }
}

EventFile::~EventFile() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

void EventFile::scalars(std::int64_t step, double wall_time, std::span<const std::pair<std::string, double>> values) {
  std::string summary;
  for (const auto& [tag, number] : values) {
    append_bytes(summary, 1, summary_value(tag, number));
  }
  std::string event = event_head(wall_time, step);
  append_bytes(event, 5, summary);
  write(record_of(event));
}

void EventFile::write(const std::string& records) {
  append_whole(fd_, size_, head_ + records, path_);
  head_.clear();
}

}  // namespace distbelief
