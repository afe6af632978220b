#include "metrics/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "metrics/html.h"
#include "metrics/test_text.h"

namespace distbelief {
namespace {

using testing::HasSubstr;
using testing::Not;

std::vector<MetricsRow> some_history(int steps) {
  std::vector<MetricsRow> rows;
  for (int step = 1; step <= steps; ++step) {
    MetricsRow row{step, step / 100.0, step * 0.1, {{"train_loss", 2.0 / step}, {"learning_rate", 0.1}}};
    if (step % 100 == 0) {
      row.values.emplace_back("test_accuracy", 0.9);
    }
    rows.push_back(row);
  }
  return rows;
}

ReportData some_report() {
  ReportData report;
  report.model = "lenet";
  report.data = "fashion-mnist";
  report.algorithm = "local";
  report.epochs = 5;
  report.test_accuracy = 0.9123;
  report.parameters = 1663370;
  report.samples = {60000, 60000, 0, 0, 0};
  report.history = some_history(500);
  report.configuration = {{"batch", "128"}};
  report.layers = {{"conv1", "conv2d", "32x28x28", 832, 1.2e6}};
  report.machine.cpu = "Some CPU";
  return report;
}

Json charts_in(const std::string& html) {
  const std::string begin = "<script type=\"application/json\" id=\"charts\">";
  const std::size_t at = html.find(begin) + begin.size();
  return parse_json(html.substr(at, html.find("</script>", at) - at));
}

TEST(Report, SaysWhatHappened) {
  const std::string html = report_html(some_report());
  for (const char* expected :
       {"lenet", "fashion-mnist", "91.23 %", "60,000 leased, 60,000 applied, 0 dropped, 0 lost, 0 twice", "batch",
        "128", "conv1", "32x28x28", "Some CPU", "5 epochs"}) {
    EXPECT_THAT(html, HasSubstr(expected));
  }
  EXPECT_THAT(html, Not(HasSubstr("audit bad")));
}

TEST(Report, ABadAuditShows) {
  ReportData report = some_report();
  report.samples = {60000, 59999, 0, 1, 0};
  EXPECT_THAT(report_html(report), HasSubstr("audit bad"));
  report.samples = {60000, 60001, 0, 0, 0};
  EXPECT_THAT(report_html(report), HasSubstr("audit bad"));
}

TEST(Report, NeedsNoNetwork) {
  const std::string html = report_html(some_report());
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
  for (const char* outside : {"http:", "https:", "//cdn", "src=", "@import", "<link"}) {
    EXPECT_THAT(html, Not(HasSubstr(outside)));
  }
}

TEST(Report, EveryTextIsEscaped) {
  const std::string evil = "<script>alert('&\"')</script>";
  ReportData report = some_report();
  report.model = report.data = report.algorithm = report.finished = evil;
  report.configuration = {{evil, evil}};
  report.layers = {{evil, evil, evil, 1, 1}};
  report.machine = {evil, evil, evil, evil, 1, 1, {evil}, 1};
  const std::string html = report_html(report);
  EXPECT_THAT(html, Not(HasSubstr("<script>alert")));
  EXPECT_EQ(count_of(html, "<script"), 2U);
  EXPECT_EQ(count_of(html, "</script"), 2U);
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(&#39;&amp;&quot;&#39;)&lt;/script&gt;"));
}

TEST(Report, DrawsOneFigureAndOneSetOfDataForEachCurve) {
  const std::string html = report_html(some_report());
  EXPECT_EQ(count_of(html, "<figure"), 3U);  // loss, accuracy, rate; no speed was measured
  const Json charts = charts_in(html);
  ASSERT_EQ(charts.size(), 3U);
  EXPECT_EQ(charts[1]["unit"], "percent");
  EXPECT_EQ(charts[1]["series"][0]["label"], "test");
  EXPECT_EQ(charts[1]["series"][0]["y"], Json({90, 90, 90, 90, 90}));
  EXPECT_EQ(charts[1]["series"][0]["step"], Json({100, 200, 300, 400, 500}));
}

TEST(Report, AnEmptyHistoryIsNoError) {
  ReportData report;
  EXPECT_THAT(report_html(report), HasSubstr("Nothing was measured yet"));
}

TEST(Report, IsWrittenWhole) {
  const auto path = std::filesystem::temp_directory_path() / ("distbelief_report_test." + std::to_string(::getpid()));
  write_report(path, some_report());
  EXPECT_EQ(read_file(path), report_html(some_report()));
  std::filesystem::remove(path);
  EXPECT_THROW(write_report("/nowhere/at/all/report.html", some_report()), FileError);
}

TEST(Html, JsonCannotEndItsScript) { EXPECT_EQ(escape_script_json(R"(["</script>"])"), R"(["\u003c/script>"])"); }

TEST(Chart, LeavesOutWhatIsNotFinite) {
  Chart chart{"Loss", ChartUnit::measure, {{"a", 0, {{0, NAN, 0}, {1, 2, 1}, {2, INFINITY, 2}}, true}}, false, 0};
  const std::string html = chart_html(chart);
  EXPECT_THAT(html, Not(HasSubstr("nan")));
  EXPECT_THAT(html, Not(HasSubstr("inf\"")));
  EXPECT_EQ(parse_json(chart_json(chart))["series"][0]["x"], Json({1}));
  chart.series[0].points.resize(1);
  EXPECT_EQ(chart_html(chart), "");
  EXPECT_EQ(chart_json(chart), "null");
}

TEST(Chart, StaysSmallHoweverLongTheRun) {
  Chart chart{"Loss", ChartUnit::measure, {{"a", 0, {}, true}}, false, 0};
  for (int i = 0; i < 200000; ++i) {
    chart.series[0].points.push_back({i / 1000.0, std::sin(i * 0.7), i});
  }
  EXPECT_LT(chart_html(chart).size(), 40000U);
  EXPECT_LT(chart_json(chart).size(), 40000U);
}

TEST(Chart, ThinningKeepsTheExtremes) {
  std::vector<ChartPoint> points;
  for (int i = 0; i < 10000; ++i) {
    points.push_back({static_cast<double>(i), i == 5000 ? 9.0 : i == 7001 ? -9.0 : 0.0, i});
  }
  const auto thin = thinned(points, 100);
  EXPECT_LE(thin.size(), 100U);
  EXPECT_TRUE(std::any_of(thin.begin(), thin.end(), [](const auto& p) { return p.y == 9; }));
  EXPECT_TRUE(std::any_of(thin.begin(), thin.end(), [](const auto& p) { return p.y == -9; }));
  EXPECT_TRUE(std::is_sorted(thin.begin(), thin.end(), [](const auto& a, const auto& b) { return a.x < b.x; }));
}

TEST(Chart, SmoothingKeepsALevelAndItsEnds) {
  std::vector<ChartPoint> points;
  for (int i = 0; i < 400; ++i) {
    points.push_back({static_cast<double>(i), i % 2 == 0 ? 1.0 : 3.0, i});
  }
  const auto smooth = smoothed(points);
  ASSERT_EQ(smooth.size(), points.size());
  EXPECT_EQ(smooth.front().y, points.front().y);
  EXPECT_NEAR(smooth[200].y, 2, 0.2);
  EXPECT_NEAR(smooth.back().y, 2, 0.5);
}

TEST(Chart, WhatRunsOutOfThePictureHasNoDot) {
  Chart chart = {
      .title = "accuracy", .unit = ChartUnit::percent, .series = {{"one", 0, {{1, 0.1}, {2, 0.8}, {3, 0.9}}}}};
  const auto dots = [&] {
    const std::string html = chart_html(chart);
    std::size_t count = 0;
    for (std::size_t at = html.find("h0"); at != std::string::npos; at = html.find("h0", at + 1)) {
      ++count;
    }
    return count;
  };
  EXPECT_EQ(dots(), 3);
  chart.y_low = 0.8;
  EXPECT_EQ(dots(), 2);
}

TEST(Chart, TheLegendNamesTheLevel) {
  const Chart chart = {.title = "accuracy",
                       .unit = ChartUnit::percent,
                       .series = {{"one", 0, {{1, 0.8}, {2, 0.9}}}, {"other", 1, {{1, 0.7}, {2, 0.8}}}},
                       .line = 0.88,
                       .line_label = "88 %"};
  EXPECT_THAT(chart_html(chart), HasSubstr("<span class=\"key level\">88 %</span>"));
}

TEST(Chart, ASteepBeginningRunsOutOfThePicture) {
  Chart chart{"Loss", ChartUnit::measure, {{"a", 0, {}, true}}, false, 0};
  for (int i = 0; i < 1000; ++i) {
    chart.series[0].points.push_back({i / 100.0, i < 10 ? 100.0 : 0.5 + 0.1 * std::sin(i), i});
  }
  EXPECT_LT(parse_json(chart_json(chart))["y"][1], 1.5);
}

}  // namespace
}  // namespace distbelief
