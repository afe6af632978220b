#include "metrics/format.h"

#include <gtest/gtest.h>

#include <cmath>

namespace distbelief {
namespace {

TEST(Format, NumbersReadAsPeopleWriteThem) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(60000), "60,000");
  EXPECT_EQ(grouped(1234567), "1,234,567");
  EXPECT_EQ(short_number(3), "3");
  EXPECT_EQ(short_number(2.5), "2.5");
  EXPECT_EQ(short_number(950), "950");
  EXPECT_EQ(short_number(999.9), "1.0k");
  EXPECT_EQ(short_number(45234), "45.2k");
  EXPECT_EQ(short_number(999960), "1.0M");
  EXPECT_EQ(clock_text(7.2), "0:07");
  EXPECT_EQ(clock_text(3723), "1:02:03");
  EXPECT_EQ(clock_text(INFINITY), "-:--");
  EXPECT_EQ(duration_text(12.34), "12.3 s");
  EXPECT_EQ(duration_text(59.97), "1 min 0 s");
  EXPECT_EQ(duration_text(3720), "1 h 2 min");
  EXPECT_EQ(bytes_text(512), "512 B");
  EXPECT_EQ(bytes_text(1536ULL << 20), "1.5 GiB");
  EXPECT_EQ(measure_text(0.35123), "0.3512");
  EXPECT_EQ(measure_text(0.000012), "1.2e-05");
  EXPECT_EQ(measure_text(NAN), "nan");
  EXPECT_EQ(measure_text(-NAN), "nan");
  EXPECT_EQ(short_number(-NAN), "nan");
  EXPECT_EQ(percent_text(-NAN), "nan %");
  EXPECT_EQ(percent_text(0.8821), "88.21 %");
}

}  // namespace
}  // namespace distbelief
