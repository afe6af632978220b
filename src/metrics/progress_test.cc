#include "metrics/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>  // posix_openpt
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <csignal>

#include "metrics/test_text.h"

namespace distbelief {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

ProgressState somewhere() { return {2, 5, 250, 500, 0.35123, 0.8821, 45234}; }

/// How many columns UTF-8 text with colour codes takes.
int columns_of(const std::string& text) {
  int columns = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = text.find('m', i);
    } else if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) {
      ++columns;
    }
  }
  return columns;
}

/// What is written into `out`, a temporary file.
class ProgressTest : public testing::Test {
 protected:
  ~ProgressTest() override { std::fclose(out_); }
  std::string written() {
    std::string text(static_cast<std::size_t>(std::ftell(out_)), '\0');
    std::rewind(out_);
    EXPECT_EQ(std::fread(text.data(), 1, text.size(), out_), text.size());
    return text;
  }
  std::FILE* out_ = std::tmpfile();
  Clock::time_point start_{};
};

TEST(ProgressLine, ShowsEverythingWhenThereIsRoom) {
  EXPECT_EQ(progress_line(somewhere(), 83, 90, false, false),
            "epoch 2/5  =========..........  250/500  loss 0.3512  accuracy 88.21 %  45.2k/s  1:23 left");
}

TEST(ProgressLine, NeverGetsWiderThanTheTerminal) {
  for (int columns = 0; columns < 200; ++columns) {
    for (const bool color : {false, true}) {
      EXPECT_LE(columns_of(progress_line(somewhere(), 83, columns, color, true)), columns);
    }
  }
  EXPECT_EQ(progress_line(somewhere(), 83, 22, false, true), "epoch 2/5  loss 0.3512");
  EXPECT_EQ(progress_line(somewhere(), 83, 5, false, true), "epoch");
}

TEST(ProgressLine, HasNoColorUnlessAsked) {
  EXPECT_THAT(progress_line(somewhere(), 83, 100, false, true), Not(HasSubstr("\x1b")));
  EXPECT_THAT(progress_line(somewhere(), 83, 100, true, true), HasSubstr("\x1b[32m"));
}

TEST_F(ProgressTest, RedrawsAtMostTenTimesASecond) {
  ProgressDisplay progress({out_, true, false, true, 80});
  for (int i = 0; i < 1000; ++i) {
    progress.update(somewhere(), start_ + milliseconds(i));
  }
  EXPECT_EQ(count_of(written(), "\r"), 10U);
}

TEST_F(ProgressTest, ElsewhereItIsAPlainLineNowAndThen) {
  {
    ProgressDisplay progress({out_, false, true, true, 0});
    for (int i = 0; i < 12; ++i) {
      progress.update(somewhere(), start_ + std::chrono::seconds(i));
    }
    progress.line("epoch 2/5 done");
  }
  const std::string text = written();
  EXPECT_EQ(count_of(text, "\n"), 3U);
  EXPECT_THAT(text, HasSubstr("epoch 2/5  250/500  loss 0.3512  accuracy 88.21 %  45.2k/s"));
  EXPECT_THAT(text, HasSubstr("epoch 2/5 done\n"));
  EXPECT_EQ(text.find_first_of("\r\x1b"), std::string::npos);
}

TEST_F(ProgressTest, ALineReplacesTheBarAndTheEndRemovesIt) {
  {
    ProgressDisplay progress({out_, true, false, true, 80});
    progress.update(somewhere(), start_);
    progress.line("said");
    progress.update(somewhere(), start_ + milliseconds(1));
  }
  const std::string text = written();
  EXPECT_THAT(text, HasSubstr("\r\x1b[Ksaid\n\repoch"));
  EXPECT_EQ(text.substr(text.size() - 4), "\r\x1b[K");
}

TEST_F(ProgressTest, TimeLeftCountsFromWhereThisPartBegan) {
  ProgressDisplay progress({out_, true, false, true, 100});
  progress.update({5, 10, 0, 100, 1, {}, 1}, start_);  // resumed at 40 %
  progress.update({7, 10, 0, 100, 1, {}, 1}, start_ + std::chrono::seconds(20));
  EXPECT_THAT(written(), HasSubstr("0:40 left"));
}

TEST(Progress, AsksTheTerminalForItsWidth) {
  const int controller = ::posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(controller, 0);
  ASSERT_EQ(::grantpt(controller), 0);
  ASSERT_EQ(::unlockpt(controller), 0);
  std::FILE* out = std::fopen(::ptsname(controller), "w");
  ASSERT_NE(out, nullptr);
  ASSERT_EQ(::isatty(::fileno(out)), 1);
  winsize size{24, 40, 0, 0};
  ASSERT_EQ(::ioctl(controller, TIOCSWINSZ, &size), 0);
  {
    ProgressDisplay progress({out, true, false, true, 0});
    progress.update(somewhere(), {});
  }
  char buffer[1000];
  const ssize_t got = ::read(controller, buffer, sizeof buffer);
  ASSERT_GT(got, 0);
  const std::string text(buffer, static_cast<std::size_t>(got));
  EXPECT_THAT(text, HasSubstr("\repoch 2/5  "));
  EXPECT_LE(columns_of(text.substr(1, text.find('\x1b') - 1)), 39);
  std::fclose(out);
  ::close(controller);
}

TEST(Progress, AClosedPipeStopsNobody) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  const auto handler = std::signal(SIGPIPE, SIG_IGN);
  std::FILE* out = ::fdopen(ends[1], "w");
  {
    ProgressDisplay bar({out, true, false, true, 80});
    bar.update(somewhere(), {});
    bar.line("nobody hears this");
    ProgressDisplay lines({out, false, false, true, 80});
    lines.update(somewhere(), {});
    lines.update(somewhere(), Clock::time_point{} + std::chrono::hours(1));
  }
  std::fclose(out);
  std::signal(SIGPIPE, handler);
}

}  // namespace
}  // namespace distbelief
