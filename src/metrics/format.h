#pragma once

#include <cstdint>
#include <string>

namespace distbelief {

// Numbers as people read them.

/// "60,000".
std::string grouped(std::uint64_t number);
/// "950", "45.2k", "1.2M".
std::string short_number(double number);
/// "0:07", "12:30", "1:02:03".
std::string clock_text(double seconds);
/// "0.8 s", "12.3 s", "2 min 5 s", "1 h 2 min".
std::string duration_text(double seconds);
/// "512 B", "1.5 GiB".
std::string bytes_text(std::uint64_t bytes);
/// Four digits after the point for everyday sizes, otherwise four that count: "0.3512", "1.2e-05".
std::string measure_text(double value);
/// The same number; of what is none, without the sign that it may have: "nan", never "-nan".
double unsigned_nan(double value);
/// "88.21 %" for 0.8821.
std::string percent_text(double fraction);

}  // namespace distbelief
