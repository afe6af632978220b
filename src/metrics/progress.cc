#include "metrics/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "metrics/format.h"

namespace distbelief {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kRedrawEvery{100};
constexpr milliseconds kPlainLineEvery{5000};
constexpr int kUsualColumns = 80;
constexpr int kMinBar = 10;
constexpr int kMaxBar = 40;

constexpr std::string_view kGreen = "\x1b[32m";
constexpr std::string_view kDim = "\x1b[2m";
constexpr std::string_view kPlain = "\x1b[0m";
constexpr std::string_view kBackAndErase = "\r\x1b[K";

double fraction_of(std::int64_t part, std::int64_t whole) {
  return whole <= 0 ? 0 : std::clamp(static_cast<double>(part) / static_cast<double>(whole), 0.0, 1.0);
}

std::string bar(double fraction, int columns, bool color, bool unicode) {
  const int full = static_cast<int>(std::floor(fraction * columns));
  std::string text(color ? kGreen : "");
  for (int i = 0; i < columns; ++i) {
    if (i == full && color) {
      text += kPlain;
      text += kDim;
    }
    if (unicode) {
      text += i < full ? "━" : color ? "━" : "─";
    } else {
      text += i < full ? '=' : '.';
    }
  }
  if (color) {
    text += kPlain;
  }
  return text;
}

/// A part of the line. Those of low weight go first when the line is too narrow.
struct Part {
  std::string text;
  int weight;
};

std::vector<Part> parts_of(const ProgressState& state, double seconds_left) {
  std::vector<Part> parts;
  parts.push_back({fmt::format("{} {}/{}", state.round, state.epoch, state.epochs), 9});
  parts.push_back({fmt::format("{}/{}", state.step, state.steps), 2});
  parts.push_back({fmt::format("loss {}", measure_text(state.loss)), 8});
  if (state.accuracy) {
    parts.push_back({fmt::format("accuracy {}", percent_text(*state.accuracy)), 5});
  }
  parts.push_back({fmt::format("{}/s", short_number(state.samples_per_second)), 3});
  parts.push_back({fmt::format("{} left", clock_text(seconds_left)), 6});
  return parts;
}

int width_of(const std::vector<Part>& parts) {
  int width = 0;
  for (const Part& part : parts) {
    width += static_cast<int>(part.text.size()) + (width > 0 ? 2 : 0);
  }
  return width;
}

void drop_lightest(std::vector<Part>& parts) {
  parts.erase(
      std::min_element(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.weight < b.weight; }));
}

std::string joined(const std::vector<Part>& parts, std::string_view after_first) {
  std::string text = parts.front().text;
  text += after_first;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    text.append("  ").append(parts[i].text);
  }
  return text;
}

int columns_of(std::FILE* out) {
  winsize size{};
  const int fd = ::fileno(out);
  return fd >= 0 && ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsualColumns;
}

}  // namespace

std::string progress_line(const ProgressState& state, double seconds_left, int columns, bool color, bool unicode) {
  std::vector<Part> parts = parts_of(state, seconds_left);
  while (parts.size() > 1 && width_of(parts) > columns) {
    drop_lightest(parts);
  }
  // The bar is worth more than the count of steps that it shows.
  if (columns - width_of(parts) - 2 < kMinBar && parts.size() > 1 && parts[1].weight == 2) {
    drop_lightest(parts);
  }
  const int room = columns - width_of(parts) - 2;
  const std::string drawn =
      room < kMinBar
          ? std::string()
          : fmt::format("  {}", bar(fraction_of(state.step, state.steps), std::min(room, kMaxBar), color, unicode));
  std::string text = joined(parts, drawn);
  if (parts.size() == 1 && static_cast<int>(text.size()) > columns) {
    text.resize(static_cast<std::size_t>(std::max(columns, 0)));
  }
  return text;
}

ProgressDisplay::~ProgressDisplay() { clear_bar(); }

void ProgressDisplay::clear_bar() {
  if (bar_shown_) {
    std::fwrite(kBackAndErase.data(), 1, kBackAndErase.size(), options_.out);
    std::fflush(options_.out);
    bar_shown_ = false;
  }
}

double ProgressDisplay::seconds_left(const ProgressState& state, Clock::time_point now) {
  const double fraction =
      (static_cast<double>(state.epoch - 1) + fraction_of(state.step, state.steps)) / static_cast<double>(state.epochs);
  if (!begun_) {  // a resumed run does not begin at 0
    begun_ = now;
    fraction_at_begin_ = fraction;
  }
  const double elapsed = std::chrono::duration<double>(now - *begun_).count();
  return fraction > fraction_at_begin_ ? elapsed * (1 - fraction) / (fraction - fraction_at_begin_) : INFINITY;
}

void ProgressDisplay::update(const ProgressState& state, Clock::time_point now) {
  const double left = seconds_left(state, now);
  if (!options_.terminal && !drawn_) {
    drawn_ = now;  // the first plain line is due after the first pause
  }
  if (drawn_ && now - *drawn_ < (options_.terminal ? kRedrawEvery : kPlainLineEvery)) {
    return;
  }
  drawn_ = now;
  if (!options_.terminal) {
    std::fputs((joined(parts_of(state, left), "") + "\n").c_str(), options_.out);
    std::fflush(options_.out);
    return;
  }
  // The last column stays empty: some terminals wrap when it is filled.
  const int columns = (options_.columns > 0 ? options_.columns : columns_of(options_.out)) - 1;
  const std::string text = progress_line(state, left, columns, options_.color, options_.unicode);
  std::fputs(fmt::format("\r{}\x1b[K", text).c_str(), options_.out);
  std::fflush(options_.out);
  bar_shown_ = true;
}

void ProgressDisplay::line(std::string_view text) {
  clear_bar();
  const std::string whole = std::string(text) + "\n";
  std::fwrite(whole.data(), 1, whole.size(), options_.out);
  std::fflush(options_.out);
  drawn_.reset();
}

}  // namespace distbelief
