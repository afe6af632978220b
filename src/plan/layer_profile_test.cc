#include "plan/layer_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/layers/dense.h"
#include "plan/parameter_layout.h"
#include "plan/test_networks.h"

namespace distbelief {
namespace {

const std::vector<ValueSpec> kInputs = {{Shape{8, 16}, ValueKind::dense}};
constexpr Backward kBoth = {.parameters = true, .inputs = true};

/// Counts how often it is asked.
struct Measure {
  int* calls;
  std::optional<LayerTime> operator()(const Layer& /*layer*/, ValueSpecs /*inputs*/, Backward /*backward*/) const {
    ++*calls;
    return LayerTime{0.001 * *calls, 0.002};
  }
};

TEST(LayerProfile, MeasuresEachLayerOnce) {
  int calls = 0;
  LayerProfile profile("cpu", "alone", Measure{&calls});
  const Dense dense({.units = 4});
  const Dense other({.units = 5});
  (void)profile.time_of(dense, kInputs, kBoth);
  EXPECT_DOUBLE_EQ(profile.time_of(dense, kInputs, kBoth)->forward, 0.001);
  EXPECT_EQ(calls, 1);
  (void)profile.time_of(other, kInputs, kBoth);
  (void)profile.time_of(dense, std::vector<ValueSpec>{{Shape{9, 16}, ValueKind::dense}}, kBoth);
  (void)profile.time_of(dense, kInputs, {.parameters = true});
  EXPECT_EQ(calls, 4);
}

TEST(LayerProfile, MeasuresFewerRowsOfWhatTakesLong) {
  int calls = 0;
  LayerProfile profile("cpu", "alone", Measure{&calls});
  const Dense dense({.units = 4096});
  const auto of = [&](std::int64_t rows) {
    return profile.time_of(dense, std::vector<ValueSpec>{{Shape{rows, 4096}, ValueKind::dense}}, kBoth)->forward;
  };
  const double of_all = of(1 << 14);
  EXPECT_DOUBLE_EQ(of(1 << 15), 2 * of_all);
  EXPECT_EQ(calls, 1);
  (void)of(8);
  EXPECT_EQ(calls, 2);
}

TEST(LayerProfile, RemembersAsText) {
  int calls = 0;
  LayerProfile profile("cpu", "alone", Measure{&calls});
  const Dense dense({.units = 4});
  (void)profile.time_of(dense, kInputs, kBoth);
  LayerProfile again("cpu", "alone", Measure{&calls});
  ASSERT_TRUE(again.read(profile.text()));
  EXPECT_DOUBLE_EQ(again.time_of(dense, kInputs, kBoth)->forward, 0.001);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(again.text(), profile.text());
  LayerProfile other("cpu", "2 threads", Measure{&calls});
  ASSERT_TRUE(other.read(profile.text()));
  (void)other.time_of(dense, kInputs, kBoth);
  EXPECT_EQ(calls, 2);  // in another setting it is another time
}

TEST(LayerProfile, RemembersWholePartsByWhatTheyCompute) {
  int calls = 0;
  const auto measure_part = [&](const NetworkPart& /*part*/, std::int64_t /*rows*/) {
    ++calls;
    return std::optional(LayerTime{0.25, 0.5});
  };
  const Graph graph = equal_layers(3, 8);
  const NetworkPart part = part_of(graph, layout_parameters(graph), uncut(graph), 0, 0);
  const Graph wider = equal_layers(3, 16);
  const NetworkPart other = part_of(wider, layout_parameters(wider), uncut(wider), 0, 0);
  LayerProfile profile("cpu", "alone", Measure{&calls}, measure_part);
  EXPECT_DOUBLE_EQ(profile.time_of_part(part, 4)->backward, 0.5);
  LayerProfile again("cpu", "alone", Measure{&calls}, measure_part);
  ASSERT_TRUE(again.read(profile.text()));
  EXPECT_DOUBLE_EQ(again.time_of_part(part, 4)->forward, 0.25);
  EXPECT_EQ(calls, 1);
  (void)again.time_of_part(part, 5);
  (void)again.time_of_part(other, 4);
  EXPECT_EQ(calls, 3);
  EXPECT_FALSE(LayerProfile("cpu", "alone", Measure{&calls}).time_of_part(part, 4).has_value());
}

TEST(LayerProfile, BelievesNothingElse) {
  int calls = 0;
  LayerProfile profile("cpu", "alone", Measure{&calls});
  (void)profile.time_of(Dense({.units = 4}), kInputs, kBoth);
  const std::string text = profile.text();
  const auto reads = [&](const std::string& some) {
    LayerProfile other("cpu", "alone", Measure{&calls});
    return other.read(some) || other.known() > 0;
  };
  EXPECT_FALSE(LayerProfile("another cpu", "alone", Measure{&calls}).read(text));
  EXPECT_FALSE(reads(""));
  EXPECT_FALSE(reads("\n\n\n"));
  EXPECT_FALSE(reads(text.substr(0, text.size() - 1)));
  EXPECT_FALSE(reads(text + "nan\t1\tdense\n"));
  EXPECT_FALSE(reads(text + "-1\t1\tdense\n"));
  EXPECT_FALSE(reads(text + "1\t1\t\n"));
  EXPECT_FALSE(reads(text + "1 1 dense\n"));
  EXPECT_FALSE(
      reads("\x7f"
            "ELF" +
            text));
}

}  // namespace
}  // namespace distbelief
