#pragma once

#include <cstdint>
#include <string>

namespace distbelief {

// Numbers with units, as people write them. Each throws InputError that begins with "--OPTION TEXT" and says what would
// do.

/// "10Gbit", "1.25GB": bytes a second.
double parse_bandwidth(const std::string& option, const std::string& text);
/// "50us", "1ms": seconds.
double parse_latency(const std::string& option, const std::string& text);
/// "2GB", "512MiB": bytes.
std::int64_t parse_bytes(const std::string& option, const std::string& text);
/// "50G": a number a second.
double parse_rate(const std::string& option, const std::string& text);

/// "850 us", "12.3 ms", "4.5 s".
std::string short_time(double seconds);

}  // namespace distbelief
