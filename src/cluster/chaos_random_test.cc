#include "cluster/chaos_random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "cluster/chaos_script.h"

namespace distbelief {
namespace {

TEST(ChaosRandom, EverySeedGivesAScriptThatFits) {
  std::set<std::string> scripts;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    for (const ChaosBounds& bounds :
         {ChaosBounds{.workers = 1}, ChaosBounds{.workers = 3, .servers = 2},
          ChaosBounds{.workers = 2, .servers = 2, .survives_a_worker = true},
          ChaosBounds{.workers = 6, .parts = 3, .survives_a_worker = true},
          ChaosBounds{.workers = 4, .parts = 4, .survives_a_worker = true},
          ChaosBounds{.workers = 4, .servers = 3, .survives_a_worker = true, .survives_a_server = true}}) {
      const std::string text = random_chaos(seed, bounds);
      EXPECT_EQ(text, random_chaos(seed, bounds));
      const ChaosScript script = parse_chaos(text);
      script.check_fit({.workers = bounds.workers, .servers = bounds.servers});
      EXPECT_GE(script.events.size(), 3U);
      std::set<int> dead;
      int dead_servers = 0;
      double last = 0;
      for (const ChaosEvent& event : script.events) {
        EXPECT_GT(*event.share, last) << text;
        last = *event.share;
        if (event.subject.kind == ChaosSubject::Kind::worker) {
          EXPECT_FALSE(dead.contains(event.subject.number / bounds.parts)) << text;
          if (event.text.starts_with("kill")) {
            dead.insert(event.subject.number / bounds.parts);
          }
        }
        dead_servers += event.text.starts_with("kill server") ? 1 : 0;
      }
      EXPECT_LE(dead.size(), bounds.survives_a_worker && bounds.workers > bounds.parts ? 1U : 0U) << text;
      EXPECT_LE(dead_servers, bounds.survives_a_server ? 1 : 0) << text;
      scripts.insert(text);
    }
  }
  EXPECT_GT(scripts.size(), 1500U);
}

TEST(ChaosRandom, ReadsItsSeed) {
  EXPECT_EQ(random_chaos_seed("random:7"), 7U);
  EXPECT_FALSE(random_chaos_seed("kill worker 1 at 5%").has_value());
  EXPECT_THROW((void)random_chaos_seed("random:"), InputError);
  EXPECT_THROW((void)random_chaos_seed("random:x"), InputError);
  EXPECT_THROW((void)random_chaos_seed("random:7; kill worker 1 at 5%"), InputError);
  EXPECT_TRUE(parse_chaos("random:7").events.empty());
  EXPECT_THROW(parse_chaos("random:x"), InputError);
}

}  // namespace
}  // namespace distbelief
