#include "metrics/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace distbelief {
namespace {

TEST(Machine, ReadsCpuinfo) {
  Machine machine;
  read_cpuinfo(
      "processor\t: 0\nmodel name\t: Some CPU @ 2.0GHz\nphysical id\t: 0\ncore id\t\t: 0\n"
      "flags\t\t: fpu avx2 fma avx512_unknown f16c\n\n"
      "processor\t: 1\nmodel name\t: Some CPU @ 2.0GHz\nphysical id\t: 0\ncore id\t\t: 0\n\n"
      "processor\t: 2\nphysical id\t: 1\ncore id\t\t: 0\n",
      machine);
  EXPECT_EQ(machine.cpu, "Some CPU @ 2.0GHz");
  EXPECT_EQ(machine.cores, 2);
  EXPECT_THAT(machine.features, testing::ElementsAre("f16c", "fma", "avx2"));
}

TEST(Machine, ReadsSizesAndNames) {
  EXPECT_EQ(kilobytes_of("MemTotal:       2048 kB\nMemFree: 7 kB\n", "MemFree"), 7U * 1024);
  EXPECT_EQ(kilobytes_of("MemTotal:       2048 kB", "MemTotal"), 2048U * 1024);
  EXPECT_EQ(kilobytes_of("", "MemTotal"), 0U);
  EXPECT_EQ(system_name("NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n"), "Debian GNU/Linux 12");
  EXPECT_EQ(system_name("PRETTY_NAME=Plain"), "Plain");
}

TEST(Machine, KnowsThisOne) {
  const Machine machine = this_machine();
  EXPECT_GT(machine.threads, 0);
  EXPECT_GT(machine.cores, 0);
  EXPECT_GT(machine.memory_bytes, 1U << 20);
  EXPECT_FALSE(machine.host.empty());
  EXPECT_GT(peak_memory_bytes(), 100U << 10);
}

}  // namespace
}  // namespace distbelief
